"""The map of the study: for each model, device and rule, twelve links and the letter of the way that wins.

An image of a page on the web has no style sheet but its own, so colours for light and dark stand in it; letters say the same
to whoever does not see the colours.
"""

from __future__ import annotations

from collections.abc import Sequence

from hil.splits.answers import RATES_MBIT, RATIOS, ROUND_TRIPS_MS, Answer
from hil.splits.findings import Road
from hil.splits.words import Outcome
from partitioner.charts.svg import drawing, rect, tag, text

LETTERS: dict[Road, str] = {"device": "D", "raw": "R", "coded": "C", "split": "S"}
LEGEND: dict[Road, str] = {"device": "on device", "raw": "raw input", "coded": "coded input", "split": "split"}
CELL_WIDTH, CELL_HEIGHT = 36.0, 18.0
GRID_WIDTH = CELL_WIDTH * len(RATES_MBIT)
GRID_HEIGHT = CELL_HEIGHT * len(ROUND_TRIPS_MS)
LEFT, TOP, GAP, BETWEEN = 214.0, 62.0, 24.0, 16.0
LEGEND_WIDTH = 112.0

STYLE = """
svg{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
text{fill:#1f2328} .dim{fill:#59636e} .strong{font-weight:600}
.device{fill:#d5dce4} .raw{fill:#f5dfa6} .coded{fill:#b9dfbe} .split{fill:#f0a39c}
.line{fill:none;stroke:#59636e;stroke-width:1}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc} .dim{fill:#9198a1}
.device{fill:#3a434e} .raw{fill:#6b5416} .coded{fill:#1f5c31} .split{fill:#99352d} .line{stroke:#9198a1}
}
"""


def draw_overview(outcomes: Sequence[Outcome]) -> str:
    """The whole drawing, a file of its own."""
    columns = [(private, ratio) for private in (False, True) for ratio in RATIOS]
    width = LEFT + len(columns) * (GRID_WIDTH + GAP)
    height = TOP + len(outcomes) * (GRID_HEIGHT + BETWEEN) + 34.0
    parts: list[str] = [tag("style", STYLE)]
    for place, (private, ratio) in enumerate(columns):
        x = LEFT + place * (GRID_WIDTH + GAP)
        parts.append(text(x, 18.0, f"device ×{ratio:g} slower", class_="strong"))
        parts.append(text(x, 34.0, "private input" if private else "any way", class_="dim"))
        for number, rate in enumerate(RATES_MBIT):
            parts.append(text(x + CELL_WIDTH * (number + 0.5), TOP - 8.0, f"{rate:g}", "middle", "dim"))
    parts.append(text(LEFT - 10.0, TOP - 8.0, "round trip / Mbit/s", "end", "dim"))
    for row, outcome in enumerate(outcomes):
        y = TOP + row * (GRID_HEIGHT + BETWEEN)
        parts.append(text(0.0, y + GRID_HEIGHT / 2 + 4.0, outcome.title, class_="strong"))
        for number, rtt in enumerate(ROUND_TRIPS_MS):
            parts.append(text(LEFT - 10.0, y + CELL_HEIGHT * number + 13.0, f"{rtt:g} ms", "end", "dim"))
        for place, (private, ratio) in enumerate(columns):
            answers = [a for a in (outcome.private if private else outcome.main) if a.place.ratio == ratio]
            parts += _grid(answers, LEFT + place * (GRID_WIDTH + GAP), y)
    parts += _legend(height - 12.0)
    words = "Who wins for each model and device at rates of 20 to 1000 Mbit/s and round trips of 2 to 20 ms, as in the page."
    return drawing(width, height, "Who wins under each condition", words, *parts).replace(
        "<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1
    )


def _grid(answers: Sequence[Answer], x: float, y: float) -> list[str]:
    parts: list[str] = []
    for answer in answers:
        left = x + CELL_WIDTH * RATES_MBIT.index(answer.place.rate_mbit)
        top = y + CELL_HEIGHT * ROUND_TRIPS_MS.index(answer.place.rtt_ms)
        shown = LETTERS[answer.winner] + ("≈" if answer.close else "")
        parts.append(rect(left, top, CELL_WIDTH, CELL_HEIGHT, answer.winner))
        parts.append(text(left + CELL_WIDTH / 2, top + 13.0, shown, "middle"))
    return [*parts, rect(x, y, GRID_WIDTH, GRID_HEIGHT, "line")]


def _legend(y: float) -> list[str]:
    parts: list[str] = []
    for number, (road, letter) in enumerate(LETTERS.items()):
        x = LEFT + number * LEGEND_WIDTH
        parts.append(rect(x, y - 13.0, CELL_HEIGHT, CELL_HEIGHT, road))
        parts.append(text(x + CELL_HEIGHT / 2, y, letter, "middle"))
        parts.append(text(x + CELL_HEIGHT + 6.0, y, LEGEND[road]))
    parts.append(text(LEFT + len(LETTERS) * LEGEND_WIDTH, y, "≈ ahead by less than 5 %", class_="dim"))
    return parts
