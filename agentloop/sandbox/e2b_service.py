"""The E2B service as this project uses it: what a call needs, whose machines are left, and what its errors mean.

The SDK (`e2b`, which `e2b-code-interpreter` brings) is imported where used (0.8 s).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from e2b import SandboxInfo

TIMEOUT = 60.0
"""Seconds that one call may take. The SDK itself leaves some to the server, which may not keep them."""
REFUSALS = (400, 402, 403, 404, 422)
"""Answers that the user can mend."""


def connection(domain: str | None = None) -> dict[str, Any]:
    """What every call of the SDK is given. Raises `UserError` where nothing can be called."""
    if why := why_not(domain):
        raise UserError(why)
    return {"domain": domain, "request_timeout": TIMEOUT}


def why_not(domain: str | None = None) -> str:
    """What is missing to call the service, '' if nothing. Asks nobody."""
    if importlib.util.find_spec("e2b") is None:
        return "the e2b sandbox needs a package more: pip install 'agentloop-lab[e2b]'"
    if not os.environ.get("E2B_API_KEY"):
        return "the e2b sandbox needs the key of an E2B account in E2B_API_KEY"
    from e2b import ConnectionConfig

    config = ConnectionConfig(domain=domain)
    if config.debug:
        return "E2B_DEBUG is set, with which the SDK starts and ends no machine: unset it"
    urls = (config.api_url, config.get_sandbox_url("any", config.domain))
    if os.environ.get("AGENTLOOP_NO_OUTSIDE") == "1" and not all(map(_is_loopback, urls)):
        return f"e2b at {config.domain}: calls to the outside are off (AGENTLOOP_NO_OUTSIDE=1)"
    return ""


def unreachable() -> str:
    """Why the service does not answer, '' if something listens there. No key is sent."""
    from e2b import ConnectionConfig

    url = urlsplit(ConnectionConfig().api_url)
    try:
        socket.create_connection((url.hostname, url.port or 443), timeout=5).close()
    except OSError:
        return f"{url.geturl()} does not answer"
    return ""


async def reap(domain: str | None = None) -> list[str]:
    """End the machines whose owner, a process of this computer since it was started, is dead; their ids."""
    options, mine = connection(domain), engine.owner_labels()
    boot = mine[engine.OWNER].split(":")[1]  # the account may be shared with others whose computer has the same name
    left = [
        machine
        for machine in await listed(options, {key: mine[key] for key in (engine.LANE, engine.HOST)})
        if boot and boot in machine.metadata.get(engine.OWNER, "").split(":") and engine.dead(machine.metadata)
    ]
    return await end(left, options)


async def listed(options: dict[str, Any], labels: dict[str, str]) -> list[SandboxInfo]:
    """The account's machines that have these labels."""
    from e2b import AsyncSandbox, SandboxQuery

    pages, found = AsyncSandbox.list(query=SandboxQuery(metadata=labels), **options), list["SandboxInfo"]()
    while pages.has_next:
        async with faults("list the machines", mendable=True):
            found += await pages.next_items()
    return found


async def end(machines: list[Any], options: dict[str, Any]) -> list[str]:
    """End these machines; the ids of those that were there. One that cannot be ended now ends by itself."""
    from e2b import AsyncSandbox

    async def one(name: str) -> bool:
        with contextlib.suppress(SandboxError):
            async with faults("end a machine"):
                return await AsyncSandbox.kill(name, **options)
        return False

    names = [machine.sandbox_id for machine in machines]
    return [name for name, done in zip(names, await asyncio.gather(*map(one, names)), strict=True) if done]


@contextlib.asynccontextmanager
async def faults(doing: str, seconds: float | None = None, *, mendable: bool = False) -> AsyncIterator[None]:
    """What the SDK raises, or does not answer in time, becomes a `SandboxError`.

    `mendable`: a refusal of the key or of what was asked becomes a `UserError`.
    """
    from e2b import AuthenticationException, TemplateException

    try:
        async with asyncio.timeout(seconds or TIMEOUT):
            yield
    except Exception as error:  # the SDK raises bare ones too
        said = one_line(error)
        if mendable and isinstance(error, AuthenticationException):
            raise UserError(f"E2B refuses the key in E2B_API_KEY: {said}") from None
        if mendable and (isinstance(error, TemplateException) or getattr(error, "status_code", 0) in REFUSALS):
            raise UserError(f"E2B does not {doing}: {said}") from None
        raise SandboxError(f"e2b: cannot {doing}: {said}") from error


def one_line(error: Exception) -> str:
    said = " ".join(str(error).split()).replace(os.environ.get("E2B_API_KEY") or "\0", "***")[:300]
    return said or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False
