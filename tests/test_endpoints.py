"""Addresses are held to one rule, wherever they come from."""

from __future__ import annotations

import pytest

from shared.endpoints import MAX_PATH, check_endpoint, endpoint_fault
from shared.errors import UserError


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1:7711", "tcp://[::1]:7711", "tcp://cloud-1.local:65535", "ipc:///run/x", "ipc:///" + "x" * 106],
)
def test_good_endpoints_pass(endpoint: str) -> None:
    check_endpoint(endpoint, binds=False)
    check_endpoint(endpoint, binds=True)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "7711",
        "127.0.0.1:7711",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:99999",
        "tcp://127.0.0.1:0",
        "tcp://:7711",
        "udp://127.0.0.1:1",
        "inproc://x",
        "ipc://",
        "ipc://relative",
        "ipc://@abstract",
        "ipc:///run/\0x",
        "ipc:///" + "x" * MAX_PATH,
    ],
)
def test_bad_endpoints_are_named(endpoint: str) -> None:
    with pytest.raises(UserError) as refused:
        check_endpoint(endpoint, binds=True)
    assert repr(endpoint) in str(refused.value)


@pytest.mark.parametrize("endpoint", ["tcp://*:7711", "tcp://127.0.0.1:*", "tcp://*:*"])
def test_a_star_is_for_one_that_listens(endpoint: str) -> None:
    assert endpoint_fault(endpoint, binds=True) is None
    assert endpoint_fault(endpoint, binds=False) == "the host and port to connect to, where * is for one that listens"
