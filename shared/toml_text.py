"""The text of TOML files. `tomllib` refuses what is none in four ways, of which two look like bugs."""

from __future__ import annotations

import tomllib

from shared.errors import UserError


def parse_toml(text: str, where: str, kind: type[UserError] = UserError) -> dict[str, object]:
    """What a TOML file's text holds. Raises `kind`, which begins with `where` and names the line, where it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("at end of document", f"at line {text.count(chr(10)) + 1}, the end of the file")
        raise kind(f"{where}: not valid TOML: {reason}") from None
    except RecursionError:
        raise kind(f"{where}: not valid TOML: brackets stand too deep in each other") from None
    except ValueError as error:
        raise kind(f"{where}: holds a number that is too long: {error}") from None
