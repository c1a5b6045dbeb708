"""Sentences that people have written, and what a BERT model takes of them: word pieces.

The sentences are those of Python's own language reference, which comes with every interpreter (`pydoc_data`). The side that
is judged by takes them from other topics than the side that is fitted to.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import cast

import numpy as np
import numpy.typing as npt

from hil.splits.pictures import Side
from shared.errors import ModelError

LONGEST_WORD = 100
"""Letters of a word beyond which BERT's own tokenizer calls it unknown."""
FEWEST_LETTERS = 40

Ids = npt.NDArray[np.int64]


def sentences_of(side: Side) -> list[str]:
    """Sentences of every second topic, the long ones of running text, none twice. A sentence that several topics have counts
    as the first one's, so that no sentence is on both sides."""
    sides: dict[str, Side] = {}
    for number, name in enumerate(sorted(cast("Mapping[str, str]", topics))):
        owner: Side = "judge" if number % 2 == 0 else "fit"
        for paragraph in topics[name].split("\n\n"):
            text = " ".join(paragraph.split()).replace("*", "").replace('"', "")
            for part in re.split(r"(?<=[.?!]) ", text) if text.isascii() else []:
                if len(part) >= FEWEST_LETTERS and _runs(part):
                    sides.setdefault(part, owner)
    return [sentence for sentence, owner in sides.items() if owner == side]


def _runs(sentence: str) -> bool:
    """Whether it is a sentence and no grammar or code: it begins and ends as one, and is of words."""
    letters = sum(character.isalpha() or character in " ,.'" for character in sentence)
    return sentence[0].isupper() and sentence.endswith((".", "?", "!")) and letters >= 0.97 * len(sentence)


@dataclass(frozen=True, slots=True)
class WordPieces:
    """BERT's uncased tokenizer: letters lowered, accents dropped, split at spaces and marks, then greedily the longest known
    piece (Devlin et al., 2018; the tokenizer that comes with it). `ids` are the pieces by name."""

    ids: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> WordPieces:
        """From a `tokenizer.json`. Raises `ModelError` where it holds no such tokenizer."""
        try:
            model = json.loads(path.read_text(encoding="utf-8"))["model"]
            return cls({str(piece): int(number) for piece, number in model["vocab"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path}: no tokenizer of word pieces ({error!r})") from error

    def encode(self, text: str) -> list[int]:
        """The numbers of the pieces of a text, without the marks of its beginning and end."""
        plain = unicodedata.normalize("NFD", text.lower())
        plain = "".join(character for character in plain if unicodedata.category(character) != "Mn")
        return [
            number for word in re.findall(r"\w+|[^\w\s]", plain.replace("_", " _ ")) for number in self._pieces(word)
        ]

    def passages(self, sentences: Sequence[str], length: int) -> list[Ids]:
        """Passages of exactly `length` pieces, (1, length) each: running sentences between the marks of beginning and end."""
        running = [number for sentence in sentences for number in self.encode(sentence)]
        inner = length - 2
        ends = self.ids["[CLS]"], self.ids["[SEP]"]
        return [
            np.array([[ends[0], *running[at : at + inner], ends[1]]], np.int64)
            for at in range(0, len(running) - inner + 1, inner)
        ]

    def _pieces(self, word: str) -> list[int]:
        unknown = [self.ids["[UNK]"]]
        if len(word) > LONGEST_WORD:
            return unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in self.ids), None)
            if end is None:
                return unknown
            found.append(self.ids[prefix + word[start:end]])
            start = end
        return found
