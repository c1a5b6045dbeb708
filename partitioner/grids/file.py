"""Reading a grid of conditions from its file; what it means is in `partitioner.grids.grid`."""

from __future__ import annotations

from pathlib import Path

from partitioner.grids.grid import GridPoint, parse_grid
from shared.errors import UserError


def read_grid(path: Path) -> tuple[GridPoint, ...]:
    """Every combination of the grid in this file. Raises `UserError` that begins with the path."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a grid of conditions was expected") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text at byte {error.start}, expected TOML") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_grid(text, str(path))
