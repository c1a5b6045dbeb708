"""The code blocks of a page: those that are files, and those that are run in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Blocks:
    """`files` by name are blocks that begin with `# NAME.py`; `steps` the others, in order."""

    files: dict[str, str]
    steps: list[str]


def blocks_of(page: Path) -> Blocks:
    files: dict[str, str] = {}
    steps: list[str] = []
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        head = re.match(r"# (\w+\.py)\n", code)
        if head:
            files[head[1]] = code
        else:
            steps.append(code)
    return Blocks(files, steps)


def install_codec(folder: Path, kind: str, target: str, package: str = "codec") -> None:
    """What an installer leaves of a package that brings a codec: the record of its entry point."""
    record = folder / f"{package}-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[headtail.codecs]\n{kind} = {target}\n")
