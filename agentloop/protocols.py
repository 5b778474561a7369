"""The contracts of the leaves. A backend or a model is a class with these methods; no base class, no registry edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentloop.types import Execution, Job, Json, Reply, Request


class Model(Protocol):
    """Answers requests. Knows nothing of graphs or stores."""

    name: str
    """As the user wrote it: `openai/gpt-4o`, `local/qwen2.5-coder-0.5b`, `scripted:FILE`."""
    concurrency: int
    """How many requests may be open at once."""

    async def start(self) -> dict[str, Json]:
        """Make ready, check that it answers, and return the identity that enters every reply key.

        Identity is a weights digest, or provider, base URL and name. Raises `UserError` where the user can mend it
        (no key, no weights, unknown name), `ModelError` where the provider is down or answers with nothing.
        """

    async def generate(self, request: Request) -> Reply:
        """One reply. Raises `ModelError` once its own bounded retries are used up."""

    async def close(self) -> None:
        """Free everything. Safe to call twice, and after a failed start."""


class Sandbox(Protocol):
    """Runs jobs in isolation. Knows nothing of graphs or stores."""

    name: str
    lanes: int
    """How many jobs may run at once in each pool."""

    async def start(self) -> dict[str, Json]:
        """Make ready, pass the preflight, and return the environment.

        The environment has "backend", "isolation" (one line for people), "toolchain" (versions), "host" (class of the
        machine), "recipe" (image digest or the like), "protocol" (the judge's). Its hash is the environment id.
        Raises `UserError` where the user can mend it, `SandboxError` otherwise.
        """

    async def execute(self, job: Job) -> Execution:
        """Run one job. A lost lane is tried once more alone; then `SandboxError`. Never a verdict."""

    async def close(self) -> None:
        """Leave no container, process or file. Safe to call twice, and after a failed start."""
