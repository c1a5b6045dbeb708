"""`Model`: an ONNX graph with the few facts that the partitioner asks for again and again."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from shared.request import TensorSpec


@dataclass(frozen=True, slots=True)
class Model:
    """A graph in memory. `proto` is never changed in place once it is in here: passes copy.

    `name` is for messages (the file's stem at first). `inputs` and `outputs` are at one row. `batchable`: the first axis
    of every input and output counts rows and may be any number. It is False until a batch has been proven.
    """

    proto: onnx.ModelProto
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batchable: bool = False

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        raise NotImplementedError

    @property
    def ir_version(self) -> int:
        """Version of the file format."""
        raise NotImplementedError

    @property
    def parameters(self) -> int:
        """Elements of all initializers."""
        raise NotImplementedError

    @property
    def weight_bytes(self) -> int:
        """Bytes of all initializers."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """sha256 (hexadecimal) of graph and weights; names the model (`Plan.model`)."""
        raise NotImplementedError
