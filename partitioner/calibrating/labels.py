"""The user's labels: what the right answer to each row is, where a metric takes that in place of the whole model's answer.

Rows of an `.npz` (or of a function) take labels from another `.npz`, whose arrays have one entry for each row, in the same
order: `class` for top1 and top5, `boxes` for detection, `text` for readers, `mask` for segmentation. Images take their class
from the folder that they lie in, which is named by its number (`photos/17/cat.jpg`), and no other labels: what lies where in
an image does not outlive its being cropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partitioner.calibrating.rows import read_arrays
from shared.errors import UserError
from shared.request import Array

Label = Mapping[str, Array]
"""What is right for one row, by the names of `LabelForm.arrays`."""


def read_labels(path: Path, rows: int, *, more: bool) -> tuple[Label, ...]:
    """Labels from an `.npz`, one for each row; where there may be `more` than were kept, those of the first. What is in them
    is checked later, when the metric and the outputs are known (`partitioner.agreement.check_labels`).

    Raises `UserError` where it cannot be read, or does not have as many.
    """
    if path.suffix != ".npz" or not path.is_file():
        what = "not an .npz file" if path.exists() else "no such file"
        raise UserError(f"labels {path}: {what}; expected an .npz with one entry for each row of the calibration data")
    arrays = read_arrays(path, "labels")
    for name, array in arrays.items():
        if array.ndim < 1 or len(array) < rows or (len(array) > rows and not more):
            raise UserError(f"labels {path}: {name!r} is {array.dtype}{list(array.shape)}, expected {rows} rows of it")
    return tuple({name: array[row : row + 1] for name, array in arrays.items()} for row in range(rows))


def class_folders(path: Path) -> dict[int, Path]:
    """The folders of a folder that are named by a class's number. Raises `UserError` where there is none."""
    found = {int(folder.name): folder for folder in path.iterdir() if folder.is_dir() and folder.name.isdecimal()}
    if not found:
        raise UserError(f"labels {path}: expected folders named by the number of the class that their images show")
    return dict(sorted(found.items()))
