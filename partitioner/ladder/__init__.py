"""The cheaper ways to answer on the device: lower resolutions, 8 bits, early exits, smaller models of the user's, and
models that a function of the user's makes.

A rung takes the same input and gives the same outputs as the whole model. Its agreement is measured on held-out data and
never guessed: small objects vanish all at once at a lower resolution, and 8 bits keep one network's answers and ruin the
next one's. Which rungs are kept is decided when they have been timed (`partitioner.choose.choose_rungs`): one that is not
faster than every better one does not earn its memory.
"""

from partitioner.ladder.others import EXIT, INT8, other_rungs, parse_rung, plan_rungs
from partitioner.ladder.own import OwnRung, RungMaker
from partitioner.ladder.resolutions import default_resolutions, lower_rungs, size_at
from partitioner.ladder.rung import LowerRung, Made, Rungs, judge
from partitioner.ladder.supplied import supplied_model

__all__ = [
    "EXIT",
    "INT8",
    "LowerRung",
    "Made",
    "OwnRung",
    "RungMaker",
    "Rungs",
    "default_resolutions",
    "judge",
    "lower_rungs",
    "other_rungs",
    "parse_rung",
    "plan_rungs",
    "size_at",
    "supplied_model",
]
