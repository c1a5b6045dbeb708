"""What a plan holds a codec of another package to before it offers its codings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from doc_blocks import DOCS, blocks_of, install_codec

from partitioner.own_codings import check_codecs, check_lossless, offered_codings
from partitioner.running import Tensors, encode_all
from shared.codecs.installed import installed
from shared.errors import UserError
from shared.plan import RAW, Coding
from shared.request import TensorSpec

SPECS = (TensorSpec("t", "float32", (1, 2, 3)),)
ROWS: list[Tensors] = [(np.arange(6, dtype=np.float32).reshape(1, 2, 3) + row,) for row in range(2)]


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's codec, and one that says it is lossless and rounds."""
    code = blocks_of(DOCS / "python.md").files["shuffled.py"]
    (tmp_path / "shuffled.py").write_text(code)
    rounding = "from shuffled import *\n\nclass Rounding(Shuffled):\n    kind = 'rounding'\n"
    rounding += "    def offer(self, *_): return [Coding('raw', 'rounding', lossless=True)]\n"
    rounding += "    def encode(self, array, *rest): return super().encode(array // 2 * 2, *rest)\n"
    (tmp_path / "rounding.py").write_text(rounding)
    install_codec(tmp_path, "shuffled", "shuffled:Shuffled")
    install_codec(tmp_path, "rounding", "rounding:Rounding", package="rounding")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    yield
    installed.cache_clear()
    for name in ("shuffled", "rounding"):
        sys.modules.pop(name, None)


def test_each_codec_that_is_asked_for_offers_once() -> None:
    offered = offered_codings(["shuffled", "shuffled"], SPECS, [[row[0] for row in ROWS]], [RAW])
    assert offered == [Coding("shuffled", "shuffled", lossless=True)]
    with pytest.raises(UserError, match="codec 'rounding' offers 'raw', a name that another coding has"):
        offered_codings(["rounding"], SPECS, [[row[0] for row in ROWS]], [RAW])


def test_a_codec_is_held_to_being_lossless() -> None:
    for kind in ("shuffled", "rounding"):
        coding = Coding("c", kind, lossless=True)
        frames = [encode_all(row, coding) for row in ROWS]
        if kind == "shuffled":
            check_lossless(coding, SPECS, ROWS, frames)
        else:
            with pytest.raises(UserError, match="codec 'rounding': 'c' is to be lossless and changed 't'"):
                check_lossless(coding, SPECS, ROWS, frames)


def test_what_cannot_be_asked_for_is_refused_by_name() -> None:
    check_codecs(["shuffled"])
    for kind in ("absent", "raw"):
        with pytest.raises(UserError, match=f"'{kind}'"):
            check_codecs([kind])


@pytest.mark.parametrize("kind", ["raw", "int8", "int4", "jpeg90", "qoi"])
def test_what_is_offered_anyway_cannot_be_asked_for(kind: str) -> None:
    with pytest.raises(UserError, match=f"codec '{kind}' is headtail's own: it is offered without being asked for"):
        check_codecs([kind])
