"""Refuses an environment in which names clash: one environment per device.

The packages are named after what they are (`shared`, `edge`, ...), and other distributions may use the same words; then
the files of one overwrite those of the other, and what runs is neither. The two builds of ONNX Runtime overwrite each
other in the same way. The check runs with a verb and not for `headtail --help`. It searches the text of the records of what
is installed; `importlib.metadata.packages_distributions` says the same but parses every line (0.4 s against 0.03 s).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec

from shared.errors import UserError

PACKAGES = ("shared", "edge", "cloud", "partitioner", "hil")
RUNTIMES = frozenset({"onnxruntime", "onnxruntime-gpu"})
ADVICE = "use one environment per device, with headtail and one build of onnxruntime in it"


class _Folder(msgspec.Struct, frozen=True):
    editable: bool = False


class _Origin(msgspec.Struct, frozen=True):
    url: str
    dir_info: _Folder = _Folder()


def check_installation() -> None:
    """Raise `UserError` where another distribution shares a package of headtail's, or both runtimes are installed."""
    found = clashes(tuple(distributions()), {name: _place(name) for name in PACKAGES})
    if found:
        raise UserError(f"{'; '.join(found)}; {ADVICE}")


def clashes(installed: Iterable[Distribution], places: Mapping[str, Path | None]) -> list[str]:
    """What is wrong, in words.

    `places` maps each of our packages to the folder it would be imported from, None where it is not to be found.
    """
    found: list[str] = []
    names: set[str] = set()
    root: Path | None = None
    for distribution in installed:
        name = distribution.name.lower().replace("_", "-")
        names.add(name)
        if name == "headtail":
            root = home(distribution) if root is None else root
            continue
        record = "\n" + (distribution.read_text("RECORD") or "")
        taken = [package for package in PACKAGES if f"\n{package}/" in record or f"\n{package}.py," in record]
        found.extend(f"the package {package!r} belongs to {name} as well as to headtail" for package in taken)
    if root is None:
        return ["headtail is not installed in this environment"]
    for package in PACKAGES:
        place = places.get(package)
        if place is not None and place != root / package:
            found.append(f"the package {package!r} is imported from {place}, while headtail's is {root / package}")
    if names >= RUNTIMES:
        found.append(f"{' and '.join(sorted(RUNTIMES))} are both installed and overwrite each other")
    return found


def home(own: Distribution) -> Path:
    """The folder that holds headtail's packages: the checkout of an editable installation, else the site folder."""
    record = own.read_text("direct_url.json")
    if record is not None:
        origin = msgspec.json.decode(record, type=_Origin)
        if origin.dir_info.editable:
            return Path(unquote(urlparse(origin.url).path)).resolve()
    return Path(str(own.locate_file(""))).resolve()


def _place(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent
