"""The six models of the study: what each takes and gives, what it is measured with, and how the page says so."""

from __future__ import annotations

from dataclasses import dataclass

from hil.splits.posts import Post, letters, mean_of_words, plate_boxes, text_map, yolox_boxes
from shared.errors import UserError

PHOTOGRAPHS = "four photographs of scikit-image, judged on two and fitted to on the two others"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model of the study. `name` is that in the zoo. `rows` names the function that yields rows, `judge` the metric.
    `judged` is how many rows are judged by, `cuts` how many cuts are measured at most. `title`, `takes`, `gives`, `data` and
    `counts` are for the page: what goes in, what comes back, what it was shown, and what agreement counts."""

    name: str
    title: str
    preprocess: str
    post: Post | None
    rows: str
    judge: str
    judged: int
    cuts: int
    takes: str
    gives: str
    data: str
    counts: str


SUBJECTS = (
    Subject(
        "plate-detector",
        "Plate detector",
        "image:mean=104/117/123,bgr",
        plate_boxes,
        "hil.splits.rows:plates",
        "hil.splits.judges:boxes",
        96,
        8,
        "one image, 320 × 320",
        "the 64 best boxes",
        f"number plates drawn into crops of {PHOTOGRAPHS}",
        "F1 of the boxes, averaged over overlaps of 0.5 to 0.95",
    ),
    Subject(
        "text-detector",
        "Text detector",
        "image:mean=127.5,std=127.5,bgr",
        text_map,
        "hil.splits.rows:signs",
        "hil.splits.judges:text_map",
        48,
        8,
        "one image, 320 × 320",
        "a map of which pixels are text, one bit each",
        f"lines of text drawn into crops of {PHOTOGRAPHS}",
        "overlap (IoU) of the areas, averaged over text and background",
    ),
    Subject(
        "text-reader",
        "Text reader",
        "image:mean=127.5,std=127.5,bgr",
        letters,
        "hil.splits.rows:lines",
        "hil.splits.judges:letters",
        96,
        8,
        "one line of text, an image of 320 × 48",
        "the best symbol of each of 40 steps",
        f"words of Python's language reference drawn over crops of {PHOTOGRAPHS}",
        "1 minus the edit distance of what is read, over its length",
    ),
    Subject(
        "yolox",
        "YOLOX",
        "image:bgr",
        yolox_boxes,
        "hil.splits.rows:captchas",
        "hil.splits.judges:boxes",
        48,
        6,
        "one image, 416 × 416",
        "the 64 best boxes",
        f"single letters drawn into crops of {PHOTOGRAPHS}",
        "F1 of the boxes, averaged over overlaps of 0.5 to 0.95",
    ),
    Subject(
        "minilm",
        "MiniLM",
        "none",
        mean_of_words,
        "hil.splits.rows:passages",
        "embeddings",
        96,
        6,
        "64 word pieces, as three lists of 64-bit integers",
        "one vector of 384 numbers",
        "passages of Python's language reference in the model's own word pieces, judged and fitted on different topics",
        "share of passages whose nearest other passage is the same",
    ),
    Subject(
        "smart-turn",
        "Speech turn detector",
        "none",
        None,
        "hil.splits.rows:turns",
        "hil.splits.judges:turn_ends",
        96,
        6,
        "a log-mel spectrum of 8 seconds, 80 × 800 floats",
        "one probability",
        "sentences spoken by a synthesiser (eSpeak NG), half of them broken off, judged and fitted with different voices and "
        "sentences; it is no recording of people, so that little is said about noisy speech",
        "share of turns of which the same is said, over or not",
    ),
)
"""In the order of the page."""

ORDER = tuple(subject.name for subject in SUBJECTS)


def subject_of(name: str) -> Subject:
    """The subject of this name. Raises `UserError` where there is none."""
    for subject in SUBJECTS:
        if subject.name == name:
            return subject
    raise UserError(f"model {name!r} is not in this study; there are {', '.join(ORDER)}")
