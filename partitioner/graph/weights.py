"""Writing the parts of a bundle, every weight once.

Parts are cut from the same models, at several resolutions perhaps, and share most of their weights. All of them lie in
one file, by content, and the parts point into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partitioner.graph.external import WeightFile, with_external_weights
from partitioner.graph.split import Chain
from shared.plan import WEIGHTS_FILE, Program, Segment


def write_programs(chains: Mapping[str, Chain], folder: Path) -> tuple[Program, ...]:
    """Write one ONNX file for each part of each chain, `PROGRAM-I.onnx`, and one `weights.bin` for all weights above
    1 KiB, into a folder that exists. The programs come in the mapping's order. Files are written fresh and renamed into
    place; the weights' file is there even where it is empty.
    """
    programs: list[Program] = []
    with WeightFile(folder / WEIGHTS_FILE) as weights:
        for name, chain in chains.items():
            segments: list[Segment] = []
            for index, part in enumerate(chain.parts):
                file = f"{name}-{index}.onnx"
                proto = with_external_weights(part.proto, weights)
                draft = folder / f".{file}"
                draft.write_bytes(proto.SerializeToString(deterministic=True))
                draft.replace(folder / file)
                segments.append(
                    Segment(
                        name=f"{name}-{index}",
                        file=file,
                        inputs=tuple(spec.name for spec in part.inputs),
                        outputs=tuple(spec.name for spec in part.outputs),
                    )
                )
            programs.append(Program(name, tuple(segments)))
    return tuple(programs)
