"""Tells a process's dead letters to whoever asks for them and may. Pure but for the call that sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from shared.events import Event, Received, Send
from shared.letters import LetterList, Letters
from shared.request import Buffer
from shared.wire.messages import PROTOCOL, AskLetters, Tensor, ToldLetters


class LetterBox:
    """Answers `AskLetters`. `forbidden` says why nothing is told, empty where it is."""

    def __init__(
        self,
        letters: Letters,
        kind: Literal["agent", "node"],
        name: str,
        incarnation: int,
        *,
        send: Callable[[Send], bool],
        forbidden: str = "",
    ) -> None:
        self._letters = letters
        self._kind: Literal["agent", "node"] = kind
        self._name = name
        self._incarnation = incarnation
        self._send = send
        self._forbidden = forbidden

    def takes(self, event: Event, now: int) -> bool:
        """Whether this event asks for dead letters; if so it is answered. Who has left meanwhile gets nothing."""
        if not isinstance(event, Received) or not isinstance(event.message, AskLetters):
            return False
        told, frames = self._told(event.message, now)
        self._send(Send(event.link, told, frames))
        return True

    def _told(self, asked: AskLetters, now: int) -> tuple[ToldLetters, tuple[Buffer, ...]]:
        if self._forbidden or asked.protocol != PROTOCOL:
            return ToldLetters(asked.number, self._forbidden or f"expected protocol {PROTOCOL}"), ()
        inputs: tuple[Buffer, ...] = ()
        found = self._letters.all()
        if asked.letter:
            letter = self._letters.find(asked.letter)
            if letter is None:
                return ToldLetters(asked.number, f"letter {asked.letter} is not here any more"), ()
            found, inputs = (letter[0],), letter[1]
        page = LetterList(self._name, self._kind, self._incarnation, now, self._letters.forgotten, found)
        frames = (msgspec.json.encode(page), *inputs)
        return ToldLetters(asked.number, "", tuple(_bytes(frame) for frame in frames)), frames


def _bytes(frame: Buffer) -> Tensor:
    return Tensor("uint8", (frame.nbytes if isinstance(frame, memoryview) else len(frame),))
