"""Writing the parts of a bundle, every weight once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partitioner.graph.split import Chain
from shared.plan import Program


def write_programs(chains: Mapping[str, Chain], folder: Path) -> tuple[Program, ...]:
    """Write one ONNX file for each part of each chain and one `weights.bin` for all weights above 1 KiB, into a folder
    that exists. The programs come in the mapping's order. Files are written fresh and renamed into place.
    """
    raise NotImplementedError
