"""What ends a command's work from outside: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def interruptible(work: Coroutine[Any, Any, T], interrupt: Callable[[], None] | None = None) -> T | None:
    """Run it. A signal cancels it: then it cleans up, and the answer is None. `interrupt`: what Ctrl-C does instead."""

    async def main() -> T | None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        loop.add_signal_handler(signal.SIGINT, interrupt or task.cancel)
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup: then it goes on
            loop.add_signal_handler(signal.SIGHUP, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    return asyncio.run(main())
