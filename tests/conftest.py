"""What all tests share: no way out to the network, no keys, and skips that name the missing part.

`AGENTLOOP_REQUIRE=docker,local-model` turns the skips of these parts into failures (CI sets it).
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("AGENTLOOP_DATA") or ROOT.parent / "shared" / "data")
REQUIRED = frozenset(filter(None, os.environ.get("AGENTLOOP_REQUIRE", "").split(",")))


class OutsideNetwork(OSError):
    """A test tried to reach another machine."""


def _loopback(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else str(host)).is_loopback
    except ValueError:
        return False


def _guard(event: str, args: tuple[object, ...]) -> None:
    """An audit hook: unlike a patch of `socket` it also sees asyncio, `_socket` and every library written in Python."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]
        if isinstance(address, tuple) and not _loopback(address[0]):
            raise OutsideNetwork(f"tests may not reach {address[0]}: only loopback addresses are open to them")
    elif event == "socket.getaddrinfo" and not _loopback(args[0]):
        raise OutsideNetwork(f"tests may not look up {args[0]!r}: only loopback addresses are open to them")


def pytest_configure(config: pytest.Config) -> None:
    """Close the network for this process and drop every key, so that child processes cannot spend money either."""
    sys.addaudithook(_guard)
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_API_TOKEN"))]:
        del os.environ[name]
    os.environ["AGENTLOOP_NO_OUTSIDE"] = "1"
    # The SDK of E2B has a network library of its own, which no audit hook sees: it has nowhere to go, twice over.
    os.environ |= {"E2B_API_URL": "http://127.0.0.1:9", "E2B_SANDBOX_URL": "http://127.0.0.1:9"}


def _docker() -> str | None:
    from agentloop.catalog import root
    from agentloop.errors import AgentloopError
    from agentloop.sandbox.engine import connect, ensure_image

    try:
        client = connect()
    except AgentloopError as error:
        return str(error)
    try:
        ensure_image(client, root() / "sandboxes" / "docker", print)
    except AgentloopError as error:
        return str(error)
    finally:
        client.close()
    return None


def _local_model() -> str | None:
    from agentloop.models.weights import available

    return available("qwen2.5-coder-0.5b") or None


def _data() -> str | None:
    return None if DATA.is_dir() else f"no benchmark data at {DATA} (set AGENTLOOP_DATA)"


def _e2b_machines() -> str | None:
    from tests.sandbox.e2b_server import why_not

    return why_not()


PARTS: dict[str, Callable[[], str | None]] = {
    "docker": _docker,
    "local-model": _local_model,
    "data": _data,
    "e2b-machines": _e2b_machines,
}
"""For each part that a machine may lack: why it is missing, or None."""


@pytest.fixture(scope="session")
def need() -> Callable[[str], None]:
    """`need("docker")` skips the test with the reason where the part is missing, or fails it where it is required."""
    found: dict[str, str | None] = {}

    def check(part: str) -> None:
        if part not in found:
            found[part] = PARTS[part]()
        if (reason := found[part]) is None:
            return
        if part in REQUIRED:
            pytest.fail(f"{part} is required (AGENTLOOP_REQUIRE) and missing: {reason}")
        pytest.skip(f"{part}: {reason}")

    return check


@pytest.fixture(scope="session")
def data_dir(need: Callable[[str], None]) -> Path:
    """The folder with the benchmark data."""
    need("data")
    return DATA


@pytest.fixture(scope="session")
def sandbox() -> str:
    """The best sandbox that this machine has without an engine, or a skip."""
    from agentloop.sandbox.local import available

    found = available()
    if not found["namespaces"]:
        return "local"
    if not found["reduced"]:
        return "local-reduced"
    pytest.skip(f"no local sandbox: {found['namespaces']}")
