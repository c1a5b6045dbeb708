"""What an address of a socket looks like: one rule for configuration files, command lines and callers. Pure."""

from __future__ import annotations

import ipaddress
import re

from shared.errors import UserError

MAX_PATH = 107
"""Bytes of an ipc path: what fits into the system's address of a local socket."""

_INTERFACE = re.compile(r"[^\s/:\0]{1,15}")
_NUMBERS = re.compile(r"[0-9.]*\.[0-9.]*")
_TCP = re.compile(r"tcp://(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5}|\*)")


def endpoint_fault(endpoint: str, *, binds: bool) -> str | None:
    """What is expected of an endpoint, where this one does not meet it.

    Only one that `binds` may say `*`: for its host, to listen on every address, or for its port, to take any free one.
    """
    expected = "ipc:///absolute/path or tcp://host:port"
    if endpoint.startswith("ipc://"):
        path = endpoint.removeprefix("ipc://")
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            return expected
        try:
            written = path.encode()
        except UnicodeEncodeError:
            return f"{expected}, in Unicode"
        if len(written) > MAX_PATH:
            return f"a path of at most {MAX_PATH} bytes after ipc://, as the kernel takes no longer one"
        return None
    match = _TCP.fullmatch(endpoint)
    if match is None:
        return expected
    if not binds and "*" in (match["host"], match["port"]):
        return "the host and port to connect to, where * is for one that listens"
    if match["port"] != "*" and not 1 <= int(match["port"]) <= 65535:
        return "a port from 1 to 65535"
    return None


def check_endpoint(endpoint: str, *, binds: bool) -> None:
    """Raise `UserError` where `endpoint_fault` finds something."""
    fault = endpoint_fault(endpoint, binds=binds)
    if fault is not None:
        raise UserError(f"endpoint {endpoint!r}: expected {fault}")


def source_fault(source: str, endpoint: str) -> str | None:
    """What is expected of the local address or interface that a connection to `endpoint` leaves from, where `source` does
    not meet it."""
    if not source:
        return None
    if not endpoint.startswith("tcp://"):
        return "none where the endpoint is not tcp://host:port"
    if is_address(source):
        host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
        if is_address(host) and (":" in host) != (":" in source):
            return f"an address of the endpoint's kind, {'IPv6' if ':' in host else 'IPv4'}"
        return None
    if _INTERFACE.fullmatch(source) and not _NUMBERS.fullmatch(source):
        return None
    return "an address of this host or the name of an interface"


def is_address(source: str) -> bool:
    """Whether a source is an address; else it names an interface."""
    try:
        ipaddress.ip_address(source)
    except ValueError:
        return False
    return True


def with_source(endpoint: str, source: str) -> str:
    """A tcp endpoint to be connected to from a local address, as ZeroMQ writes it."""
    host = f"[{source}]" if ":" in source else source
    return endpoint.replace("tcp://", f"tcp://{host}:0;", 1)
