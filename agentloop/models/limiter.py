"""How fast one model may be asked: requests open at once, requests per minute, tokens per minute. Waiters keep order.

Rates are paced, not counted by the minute: a request starts when what was started before has been paid off at the
allowed rate. So no minute sees more than the allowed number of requests, and nothing bursts at a minute's turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slot:
    """The right to one call. `spent(tokens)` replaces the estimate by what the call really used."""

    def __init__(self, limiter: Limiter, estimate: int) -> None:
        self._limiter = limiter
        self._estimate = estimate

    def spent(self, tokens: int) -> None:
        """Tell what the call used, prompt and completion together, so that later calls wait for the true amount."""
        self._limiter._shift(tokens - self._estimate)
        self._estimate = tokens


class Limiter:
    """The limits of one model. Time is the running event loop's; one limiter belongs to one loop."""

    def __init__(
        self, concurrency: int, requests_per_minute: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        self.concurrency = concurrency
        self._per_request = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._open = asyncio.Semaphore(concurrency)
        self._turn = asyncio.Lock()
        self._next_request = float("-inf")
        self._next_token = float("-inf")

    @asynccontextmanager
    async def slot(self, tokens: int = 0) -> AsyncIterator[Slot]:
        """Wait for a turn, first come first served. `tokens` is the estimate of what the call will use."""
        async with self._open:
            # Only the first in line watches the clock; one that is cancelled while it waits has taken nothing.
            async with self._turn:
                await self._until_free()
                now = asyncio.get_running_loop().time()
                self._next_request = now + self._per_request
                self._next_token = max(now, self._next_token) + tokens * self._per_token
            yield Slot(self, tokens)

    def hold(self, seconds: float) -> None:
        """Start nothing for so long: the provider asked to wait, and that holds for every caller."""
        self._next_request = max(self._next_request, asyncio.get_running_loop().time() + seconds)

    async def _until_free(self) -> None:
        loop = asyncio.get_running_loop()
        # A hold or a corrected estimate may move the time while we sleep.
        while (wait := max(self._next_request, self._next_token) - loop.time()) > 0:
            await asyncio.sleep(wait)

    def _shift(self, tokens: int) -> None:
        self._next_token += tokens * self._per_token
