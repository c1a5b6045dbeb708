"""The one small tree of errors: a user's mistake, a peer's mistake, our own.

A missed deadline is a result (`shared.request.Missed`), never an exception. Exceptions of foreign libraries are
translated where they enter, so that callers meet only what is defined here.
"""

from __future__ import annotations


class HeadtailError(Exception):
    """Root of everything headtail raises on purpose."""


class UserError(HeadtailError, ValueError):
    """Something the caller or the operator gave is wrong; the message names it and what was expected.

    Commands print it as one line and exit with status 2. It is a `ValueError`, as Python users expect.
    """


class InputError(UserError):
    """A request's tensors, deadline or model name do not fit the plan."""


class SettingsError(UserError):
    """A configuration file is wrong; the message starts with the file and the key's path."""


class BundleError(UserError):
    """A bundle is missing, damaged, half-copied or of another format; the message names the file at fault."""


class ModelError(UserError):
    """A model file cannot be read, cut or run; the message names the model and the reason."""


class JournalError(UserError):
    """A journal cannot be read, run again or written; the message names the file and the reason."""


class Unsatisfiable(HeadtailError):
    """Nothing satisfies all that the user demands; the message names the demand that binds and the nearest value that would
    do. Commands print it as one line and exit with status 4."""


class PeerError(HeadtailError):
    """Another process sent something that the protocol does not allow.

    `reason` is a short fixed word that is counted (`frames`, `header`, `size`, `shape`, `version`, ...), never free text.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class InvariantBroken(HeadtailError):
    """A rule of our own does not hold: a bug. The process stops and tells its story."""


def shown(value: object) -> str:
    """How a value that somebody gave stands in a message: as Python writes it, on one line and cut short; by its type where
    it cannot be written, as an integer of 5,000 digits and whatever has a fault in its own `__repr__`."""
    try:
        return f"{' '.join(repr(value).split()):.80}"
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
