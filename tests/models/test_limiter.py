"""Limits of a model, measured on a clock that only the event loop moves."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

import pytest

from agentloop.models.limiter import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.DefaultSelector):
    def __init__(self, loop: Clock) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.now += timeout or 0.0
        return super().select(0)


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(main())


async def starts(limiter: Limiter, calls: list[int], took: float = 0.0) -> list[tuple[int, float]]:
    """(number, start time) of calls with these token estimates that are all asked for at once, in starting order."""
    log: list[tuple[int, float]] = []

    async def call(number: int, tokens: int) -> None:
        async with limiter.slot(tokens) as slot:
            log.append((number, asyncio.get_running_loop().time()))
            await asyncio.sleep(took)
            slot.spent(tokens)

    async with asyncio.TaskGroup() as group:
        for number, tokens in enumerate(calls):
            group.create_task(call(number, tokens))
    return log


def test_no_more_open_than_allowed_and_first_come_first_served() -> None:
    log = run(lambda: starts(Limiter(2), [0] * 6, took=10.0))
    assert log == [(0, 0.0), (1, 0.0), (2, 10.0), (3, 10.0), (4, 20.0), (5, 20.0)]


def test_any_minute_has_at_most_the_allowed_requests() -> None:
    log = run(lambda: starts(Limiter(100, requests_per_minute=7), [0] * 30))
    times = [time for _, time in log]
    assert [number for number, _ in log] == list(range(30))
    assert max(sum(start <= time < start + 60 - 1e-6 for time in times) for start in times) == 7
    assert times[-1] == pytest.approx(29 * 60 / 7)  # and not slower than allowed


def test_tokens_are_paid_off_at_the_allowed_rate() -> None:
    log = run(lambda: starts(Limiter(100, tokens_per_minute=600), [100, 50, 1000, 1]))
    assert [time for _, time in log] == pytest.approx([0, 10, 15, 115])


def test_the_true_use_replaces_the_estimate() -> None:
    async def main() -> float:
        limiter = Limiter(1, tokens_per_minute=60)
        async with limiter.slot(1000) as slot:
            slot.spent(30)
        async with limiter.slot(1):
            return asyncio.get_running_loop().time()

    assert run(main) == pytest.approx(30)


def test_a_hold_stops_those_who_wait_too() -> None:
    async def main() -> list[tuple[int, float]]:
        limiter = Limiter(10, requests_per_minute=60)
        waiting = asyncio.ensure_future(starts(limiter, [0, 0, 0]))
        await asyncio.sleep(0.5)
        limiter.hold(20)
        return await waiting

    assert [time for _, time in run(main)] == pytest.approx([0, 20.5, 21.5])


def test_who_gives_up_waiting_takes_nothing() -> None:
    async def main() -> float:
        limiter = Limiter(1, requests_per_minute=1)
        async with limiter.slot():
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), limiter.slot():
                pass
        async with limiter.slot():
            return asyncio.get_running_loop().time()

    assert run(main) == pytest.approx(60)
