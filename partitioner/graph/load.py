"""Reading a model file, with one clear error for everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import checker, external_data_helper

from partitioner.graph.door import check_elements, check_files
from partitioner.graph.model import Model, as_read, opset_of
from partitioner.graph.runtime import open_session, providers
from shared.errors import ModelError


def read_model(path: Path) -> Model:
    """Parse a file without asking a runtime. External data is read too.

    Raises:
        ModelError: missing, a folder, empty, not ONNX, no operators, newer than the installed onnx; weights that are missing,
            lie outside the model's folder, or are not as many as their shape says.
    """
    if not path.exists():
        raise ModelError(f"{path}: there is no such file; an ONNX model was expected")
    if not path.is_file():
        raise ModelError(f"{path}: not a file; an ONNX model was expected")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: the file is empty; an ONNX model was expected")
    try:
        proto = onnx.load(  # pyright: ignore[reportUnknownMemberType]
            str(path), format="protobuf", load_external_data=False
        )
        _check_versions(path, proto)
        check_files(proto, path)
        external_data_helper.load_external_data_for_model(proto, str(path.parent))
    except ModelError:
        raise
    except DecodeError as error:
        raise ModelError(f"{path}: not an ONNX model ({error})") from error
    except (OSError, ValueError, checker.ValidationError) as error:
        raise ModelError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    check_elements(proto, path)
    return as_read(proto, path.name)


def _check_versions(path: Path, proto: onnx.ModelProto) -> None:
    if not proto.ir_version or not proto.graph.output:
        raise ModelError(f"{path}: not an ONNX model (no graph with outputs in it)")
    if not proto.graph.node:
        raise ModelError(f"{path}: the graph has no operators")
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{path}: file format {proto.ir_version} is newer than {onnx.IR_VERSION}, the newest that is understood"
        )
    newest = onnx.defs.onnx_opset_version()
    if opset_of(proto) > newest:
        raise ModelError(f"{path}: opset {opset_of(proto)} is newer than {newest}, the newest that is understood")
    if proto.graph.sparse_initializer:
        raise ModelError(f"{path}: it has sparse initializers, which cannot be cut; save it with dense ones")


def load_model(path: Path) -> Model:
    """`read_model`, and prove that an installed provider can load it.

    Raises:
        ModelError: as above; an operator that no installed provider has; a model that no provider can run.
    """
    model = read_model(path)
    problem = refusal(path)
    if problem is not None:
        raise problem
    return model


def refusal(path: Path) -> ModelError | None:
    """Why no installed provider can load a file; None where one can."""
    first: ModelError | None = None
    for provider in reversed(providers()):  # the processor is listed last and needs no device
        try:
            open_session(path, provider=provider, optimisation="none")
        except ModelError as error:
            first = first or error
        else:
            return None
    return first or ModelError(f"{path.name}: onnxruntime has no provider at all")
