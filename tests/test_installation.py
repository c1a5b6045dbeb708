"""An environment in which names clash is refused in words that say what to do."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from shared import installation
from shared.errors import UserError
from shared.installation import PACKAGES, check_installation, clashes, home


def distribution(site: Path, name: str, *, files: tuple[str, ...] = (), editable: Path | None = None) -> Distribution:
    """A distribution as pip would leave it in `site`."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    if editable is not None:
        (info / "direct_url.json").write_text(json.dumps({"url": editable.as_uri(), "dir_info": {"editable": True}}))
    return PathDistribution(info)


def places(root: Path) -> dict[str, Path | None]:
    return {package: root / package for package in PACKAGES}


def test_headtail_alone_is_fine(tmp_path: Path) -> None:
    own = distribution(tmp_path, "headtail", files=("shared/__init__.py", "edge/__init__.py"))
    other = distribution(tmp_path, "numpy", files=("numpy/__init__.py", "numpy/shared/x.py", "sharedlib/__init__.py"))
    assert clashes([own, other], places(tmp_path)) == []


def test_an_editable_installation_lives_in_its_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    own = distribution(tmp_path / "site", "headtail", editable=checkout)
    assert home(own) == checkout
    assert clashes([own], places(checkout)) == []


@pytest.mark.parametrize("file", ["shared/__init__.py", "shared.py"])
def test_a_package_that_another_distribution_holds_too_is_refused(tmp_path: Path, file: str) -> None:
    own = distribution(tmp_path, "headtail", files=("shared/__init__.py",))
    other = distribution(tmp_path, "other-thing", files=(file,))
    assert clashes([own, other], places(tmp_path)) == [
        "the package 'shared' belongs to other-thing as well as to headtail"
    ]


def test_a_package_from_another_place_is_refused(tmp_path: Path) -> None:
    own = distribution(tmp_path, "headtail")
    (problem,) = clashes([own], places(tmp_path) | {"edge": Path("/elsewhere/edge")})
    assert problem == f"the package 'edge' is imported from /elsewhere/edge, while headtail's is {tmp_path}/edge"


def test_two_builds_of_the_runtime_are_refused(tmp_path: Path) -> None:
    own = distribution(tmp_path, "headtail")
    both = [distribution(tmp_path, name) for name in ("onnxruntime", "onnxruntime_gpu")]
    (problem,) = clashes([own, *both], places(tmp_path))
    assert problem == "onnxruntime and onnxruntime-gpu are both installed and overwrite each other"
    assert clashes([own, both[1]], places(tmp_path)) == []


def test_an_environment_without_headtail_is_refused(tmp_path: Path) -> None:
    assert clashes([distribution(tmp_path, "numpy")], places(tmp_path)) == [
        "headtail is not installed in this environment"
    ]


def test_the_environment_of_the_tests_passes_and_a_clash_in_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_installation()
    installed = list(installation.distributions())
    intruder = distribution(tmp_path, "intruder", files=("cloud/__init__.py",))
    monkeypatch.setattr(installation, "distributions", lambda: [*installed, intruder])
    with pytest.raises(UserError, match=r"'cloud' belongs to intruder.*one environment per device"):
        check_installation()
