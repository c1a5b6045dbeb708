"""Reading a model file, with one clear error for everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

from partitioner.graph.model import Model


def read_model(path: Path) -> Model:
    """Parse a file without asking a runtime. External data is read too.

    Raises:
        ModelError: missing, a folder, empty, not ONNX, no operators, newer than the installed onnx.
    """
    raise NotImplementedError


def load_model(path: Path) -> Model:
    """`read_model`, and prove that an installed provider can load it.

    Raises:
        ModelError: as above; an operator that no installed provider has; a model that no provider can run.
    """
    raise NotImplementedError
