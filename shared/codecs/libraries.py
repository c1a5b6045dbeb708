"""Libraries that only some codings need, imported when they are first used, so that a device without them runs the rest."""

from __future__ import annotations

import importlib
from types import ModuleType

from shared.errors import UserError


def library(name: str, kind: str) -> ModuleType:
    """The module `name`, of a package of the same name, which the coding `kind` needs. Raises `UserError` where it is not
    installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"the {kind} coding needs the package {name} (it is in the extras edge and cloud, qoi on x86-64 only)"
        ) from None
