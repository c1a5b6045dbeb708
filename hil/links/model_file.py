"""Parameter sets of links as TOML (`configs/links/`)."""

from __future__ import annotations

import msgspec

from hil.links.model import LinkModel, check_model
from hil.toml import to_toml
from shared.errors import UserError
from shared.toml_text import parse_toml


def read_model(text: str, name: str) -> LinkModel:
    """The parameter set in the text of a TOML file called `name`.

    Raises `UserError` that names the file and the key where it is no TOML, a key is unknown or missing, or a value is out
    of range.
    """
    tree = parse_toml(text, name)
    try:
        model = msgspec.convert(tree, LinkModel)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {error}") from None
    check_model(model, name)
    return model


def write_model(model: LinkModel) -> str:
    """A parameter set as the text of a TOML file, without what is at its default."""
    return to_toml(model)
