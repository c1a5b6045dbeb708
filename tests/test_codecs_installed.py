"""Codecs of other packages: found by entry point alone, fenced in, and refused by name where they are not there."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from doc_blocks import DOCS, blocks_of, install_codec
from test_codecs import decoded
from tiny import make_bundle, write_plan

from shared.bundle import load_bundle, write_manifest
from shared.codecs import coding_fault, encode, frame_bounds
from shared.codecs.installed import Installed, installed
from shared.errors import BundleError, InputError, PeerError, UserError
from shared.plan import Coding
from shared.request import TensorSpec

SHUFFLED = Coding("shuffled", "shuffled", lossless=True)
SPEC = TensorSpec("t", "float32", (1, 3, 8))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder that is searched for packages, with the page's codec in it, not yet installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shuffled.py").write_text(blocks_of(DOCS / "python.md").files["shuffled.py"])
    installed.cache_clear()
    yield tmp_path
    installed.cache_clear()
    sys.modules.pop("shuffled", None)


def test_a_kind_that_is_not_declared_is_refused_by_name_and_nothing_is_imported(place: Path) -> None:
    bundle = make_bundle(place, "chain")
    plan = load_bundle(bundle).plan
    cut = msgspec.structs.replace(plan.cuts[1], codings=(*plan.cuts[1].codings, SHUFFLED))
    write_plan(bundle, msgspec.structs.replace(plan, cuts=(plan.cuts[0], cut, *plan.cuts[2:])))
    write_manifest(bundle)
    with pytest.raises(BundleError, match="cut 'wide', coding 'shuffled': no codec 'shuffled' is installed here"):
        load_bundle(bundle)
    assert "shuffled" not in sys.modules
    install_codec(place, "shuffled", "shuffled:Shuffled")
    assert load_bundle(bundle).plan.cuts[1].coding("shuffled") == SHUFFLED


def test_an_installed_codec_gives_back_what_it_was_given(place: Path) -> None:
    install_codec(place, "shuffled", "shuffled:Shuffled")
    array = np.random.default_rng(0).standard_normal(SPEC.shape).astype(np.float32)
    frame = encode(array, SHUFFLED, 0)
    low, high = frame_bounds(SHUFFLED, SPEC, 1)
    assert low <= memoryview(frame).nbytes <= high
    assert decoded(frame, SHUFFLED, SPEC, 1).tobytes() == array.tobytes()
    assert coding_fault(SHUFFLED, (SPEC,)) is None
    assert "quality is given" in (coding_fault(msgspec.structs.replace(SHUFFLED, quality=1), (SPEC,)) or "")
    assert not SHUFFLED.lossy
    assert SHUFFLED.coded


def test_a_hostile_frame_is_a_peers_fault(place: Path) -> None:
    install_codec(place, "shuffled", "shuffled:Shuffled")
    good = bytes(encode(np.zeros(SPEC.shape, np.float32), SHUFFLED, 0))
    bomb = bytes(encode(np.zeros((1, 3, 512), np.float32), SHUFFLED, 0))
    for frame in (b"\0" * 40, good[:-1], good + b"x", bomb):
        with pytest.raises(PeerError, match="codec 'shuffled': decode failed") as caught:
            decoded(frame, SHUFFLED, SPEC, 1)
        assert caught.value.reason == "codec"
    with pytest.raises(PeerError, match="bytes, expected 8 to"):
        decoded(b"\0" * 1000, SHUFFLED, SPEC, 1)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere:Codec", "nowhere:Codec fails with ModuleNotFoundError"),
        ("shuffled:Absent", "fails with AttributeError"),
        ("shuffled:zlib", "fails with TypeError"),
        ("builtins:dict", "has no function 'fault'"),
        ("shuffled:Shuffled", "says that it is of kind 'shuffled'"),
    ],
)
def test_an_entry_point_that_is_no_codec_is_refused(place: Path, target: str, message: str) -> None:
    install_codec(place, "other", target)
    assert message in (coding_fault(Coding("c", "other"), (SPEC,)) or "")


def test_a_kind_that_two_packages_bring_is_refused(place: Path) -> None:
    install_codec(place, "shuffled", "shuffled:Shuffled")
    install_codec(place, "shuffled", "another:Shuffled", package="another")
    with pytest.raises(UserError, match="several packages bring it: another:Shuffled, shuffled:Shuffled"):
        installed("shuffled")


class Broken:
    """A codec each of whose functions does something wrong."""

    kind = "broken"
    fields = frozenset({"bits"})

    def __init__(self, offered: Sequence[Coding] = ()) -> None:
        self._offered = offered

    def fault(self, coding: Coding, tensors: object) -> str | None:
        return "bits are odd" if coding.bits % 2 else None

    def encode(self, *_: object) -> bytes:
        raise KeyError("lost")

    def bounds(self, *_: object) -> tuple[int, int]:
        return 5, 4

    def decode(self, *_: object) -> None:
        raise SystemError("worse")

    def offer(self, *_: object) -> Sequence[Coding]:
        return self._offered


def test_whatever_a_codec_does_is_an_error_that_names_it() -> None:
    broken, coding = Installed(Broken(), "broken"), Coding("b", "broken")
    with pytest.raises(InputError, match="codec 'broken': encode failed with KeyError: 'lost'"):
        broken.encode(np.zeros(3), coding, 0)
    with pytest.raises(InputError, match="bounds failed with ValueError: 5 to 4 bytes"):
        broken.bounds(coding, SPEC, 1)
    with pytest.raises(PeerError, match="t: codec 'broken': decode failed with SystemError: worse"):
        broken.decode(b"", coding, 0, SPEC, np.zeros(3))
    with pytest.raises(UserError, match="offers 'x', a coding of kind 'raw'"):
        Installed(Broken([Coding("x", "raw")]), "broken").offer((SPEC,), [])
    with pytest.raises(UserError, match="offers 'x', which does not fit: bits are odd"):
        Installed(Broken([Coding("x", "broken", bits=1)]), "broken").offer((SPEC,), [])
    odd = type("Odd", (Broken,), {"fields": frozenset({"colour"})})
    with pytest.raises(UserError, match="uses 'colour': expected fields among quality"):
        Installed(odd(), "broken")
