"""A device with the edge extra alone can import the edge, and pays for nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "onnx",
    "scipy",
    "networkx",
    "torch",
    "PIL",
    "skimage",
    "starlette",
    "uvicorn",
    "grpc",
    "ray",
    "hil",
    "partitioner",
    "cloud",
)

PROGRAM = """
import importlib, sys

heavy = set({heavy!r})

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(f"{{name}} is not part of the edge extra", name=name)

sys.meta_path.insert(0, Absent())
for module in {modules!r}:
    importlib.import_module(module)
"""


@pytest.mark.parametrize(
    "modules",
    [("edge.client",), ("edge.agent",), ("edge.embedded",), ("shared.cli", "edge.commands"), ("shared.doctor.cli",)],
)
def test_the_edge_imports_without_anything_heavier_than_its_extra(modules: tuple[str, ...]) -> None:
    program = PROGRAM.format(heavy=HEAVY, modules=modules)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
