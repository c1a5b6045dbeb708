"""Whether links can be emulated on this machine, for the tests that need it."""

from __future__ import annotations

import pytest

from hil.emulator import namespaces
from shared.errors import UserError


def why_not() -> str:
    """What is missing here, empty where nothing is."""
    try:
        namespaces.check_able()
    except UserError as error:
        return str(error)
    return ""


WHY_NOT = why_not()
needs_kernel = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
