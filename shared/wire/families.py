"""Whether the models that an agent tells of can be asked by the names of their families (`shared.padding`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shared.wire.messages import ModelInfo


def family_faults(models: Sequence[ModelInfo]) -> Iterator[str]:
    """What does not hold, as sentences: a family's buckets are of one model, each of another length, and no model has its
    name. A client looks at one bucket to read what was given, and at another to pad it."""
    called = {info.name for info in models}
    first: dict[str, ModelInfo] = {}
    sizes: dict[tuple[str, int], str] = {}
    for info in models:
        padding = info.padding
        if padding is None:
            continue
        family, other = padding.family, first.setdefault(padding.family, info)
        if family in called:
            yield f"model {family!r} has the name of the family of {info.name!r}; expected another one"
        if _kind(info) != _kind(other):
            yield (
                f"models {other.name!r} and {info.name!r} are buckets of {family!r}, and their tensors differ by more than "
                "the length; expected those of one model, planned alike"
            )
        twin = sizes.setdefault((family, padding.size), info.name)
        if twin != info.name:
            yield f"models {twin!r} and {info.name!r} are both the bucket {padding.size} of {family!r}; expected one"


def _kind(info: ModelInfo) -> object:
    """What all buckets of a family have in common."""
    padding = info.padding
    if padding is None:
        return None
    axes = {padded.tensor: padded.axis for padded in padding.inputs}
    inputs = [
        (name, dtype, [size for axis, size in enumerate(shape) if axis != axes.get(name)], len(shape))
        for name, dtype, shape in info.inputs
    ]
    return (padding.dimension, axes, inputs, info.outputs, padding.outputs, info.batchable)
