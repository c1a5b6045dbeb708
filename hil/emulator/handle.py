"""An emulator in the hands of a rig: it starts the process, names its places, tells it what the links do."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

import msgspec

from hil.child import LineChild
from hil.emulator.messages import (
    Build,
    Command,
    Link,
    LinkCounts,
    Place,
    Places,
    Play,
    PlayTrace,
    Reply,
    Report,
    Reseed,
    Reshape,
    check_links,
)
from hil.emulator.namespaces import check_able, configure, open_socket, sweep
from hil.emulator.shape import Shape
from hil.emulator.sources import Step
from hil.emulator.trace_chunks import trace_chunks
from hil.emulator.trace_source import trace_sources
from hil.links.trace import Trace
from shared.errors import UserError

ONE_LINK = (Link("air"),)


class Emulator(LineChild):
    """Sites joined by emulated links. Use it as a context manager, or `close` it; all that it made goes with it, also where
    either process is killed (where both are, when the next emulator starts).

    Raises `UserError` where the machine cannot do it (the message says what is missing), where links are wrong or a command
    is refused, and `HeadtailError` where the process has died.
    """

    def __init__(self, links: Sequence[Link] = ONE_LINK, seed: int = 1) -> None:
        check_links(links)
        check_able()
        super().__init__("hil.emulator.loop")
        try:
            self._places = self._command(Build(tuple(links), seed)).places
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process and remove what it made, even where it was killed. Doing it twice does nothing."""
        super().close()
        sweep()

    def place(self, link: str, site: str) -> Place:
        """Where a site's end of a link is now."""
        places = self._places.get(link)
        for place in (places.near, places.far) if places else ():
            if place.site == site:
                return place
        raise UserError(f"link {link!r} has no end at {site!r}")

    def namespace(self, site: str) -> str:
        """The name of a site's network namespace."""
        for places in self._places.values():
            for place in (places.near, places.far):
                if place.site == site:
                    return place.namespace
        raise UserError(f"there is no site {site!r}")

    def command_at(self, site: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` at a site."""
        return ["ip", "netns", "exec", self.namespace(site), *command]

    def socket_at(self, site: str, kind: socket.SocketKind) -> socket.socket:
        """An IPv4 socket at a site, for the calling process, which is not there."""
        return open_socket(self.namespace(site), kind)

    def shape(self, up: Shape | None = None, down: Shape | None = None, link: str | None = None) -> None:
        """Change what one link or all do from now on; None leaves a direction as it is."""
        self._command(Reshape(up, down, link))

    def play(
        self, up: Sequence[Step] = (), down: Sequence[Step] = (), repeat_ms: float = 0.0, link: str | None = None
    ) -> None:
        """Let shapes follow one another, on one link or all, timed by the emulator itself."""
        self._command(Play(tuple(up), tuple(down), repeat_ms, link))

    def play_trace(self, trace: Trace, link: str | None = None, queue_bytes: int = Shape().queue_bytes) -> int:
        """Play a trace again and again, on one link or all, and return when it began, in nanoseconds of CLOCK_MONOTONIC.

        It is handed over in pieces, during which the links go on as they are. `queue_bytes` is what waits in each direction.
        Raises `UserError` where the emulator cannot play it.
        """
        trace_sources(trace, queue_bytes)
        for piece in trace_chunks(trace):
            self._command(piece)
        return self._command(PlayTrace(trace.step_us, queue_bytes, link)).began_ns

    def reseed(self, seed: int, link: str | None = None) -> None:
        """Begin the fates of packets anew, so that what comes now meets the same as once before."""
        self._command(Reseed(seed, link))

    def report(self) -> Reply:
        """Counts since the beginning, lateness since the last report."""
        return self._command(Report())

    def counts(self, link: str) -> LinkCounts:
        """Counts of one link since the beginning."""
        return self.report().links[link]

    def readdress(self, link: str, site: str, address: str) -> None:
        """Give a site's end of a link another IPv4 address, as a vehicle gets one in another network.

        The old one is gone: connections that use it hang, and what is sent to it vanishes at the site, as in the field. The
        link itself goes on; stall or darken it by its shape where that should happen too.
        """
        place = self.place(link, site)
        places = self._places[link]
        other = places.far if place is places.near else places.near
        try:
            wanted = ipaddress.IPv4Address(address)
        except ValueError:
            raise UserError(f"{address!r} is no IPv4 address") from None
        if wanted.is_loopback or wanted.is_multicast or wanted.is_unspecified or wanted.is_reserved:
            raise UserError(f"{address} is no address of a host")
        used = {end.address for ends in self._places.values() for end in (ends.near, ends.far)}
        if str(wanted) in used:
            raise UserError(f"{address} is in use at an end of a link already")
        configure(other.namespace, [f"route replace {wanted}/32 dev {other.device}"])
        configure(
            place.namespace,
            [f"addr add {wanted}/32 dev {place.device}", f"addr del {place.address}/32 dev {place.device}"],
        )
        moved = msgspec.structs.replace(place, address=str(wanted))
        self._places[link] = Places(moved, other) if place is places.near else Places(other, moved)

    def _command(self, command: Command) -> Reply:
        reply = msgspec.json.decode(self.ask(msgspec.json.encode(command)), type=Reply)
        if reply.error:
            raise UserError(f"the emulator refuses: {reply.error}")
        return reply
