"""The tests' own guard: no test of this project can reach another machine."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest


def test_other_machines_are_out_of_reach() -> None:
    with socket.socket() as sock, pytest.raises(OSError, match="tests may not reach"):
        sock.connect(("192.0.2.1", 443))  # TEST-NET-1: no machine has it
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(OSError, match="tests may not reach"):
        sock.sendto(b"", ("192.0.2.1", 53))
    with pytest.raises(OSError, match="tests may not look up"):
        socket.getaddrinfo("api.example.com", 443)


async def test_asyncio_is_guarded_too() -> None:
    with pytest.raises(OSError, match="tests may not"):
        await asyncio.open_connection("192.0.2.1", 443)


def test_loopback_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        assert sock.getpeername() == server.getsockname()


def test_no_key_is_left_in_the_environment() -> None:
    assert not [name for name in os.environ if name.endswith("_API_KEY")]
