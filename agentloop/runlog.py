"""The run log: what happened to a run, for people, one JSON line an event, in `run.log` of its directory.

It tells of sessions, faults and stops with their times; results are in the store alone. Appended by each session.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentloop.progress import Observer

FILE = "run.log"
LOGGED = ("phase", "notice", "plan", "fault", "stopped")


class Logging:
    """Passes events on to another observer and writes those that a later reader asks for."""

    def __init__(self, observer: Observer, logger: Any) -> None:
        self._observer, self._logger = observer, logger

    def event(self, kind: str, /, **data: Any) -> None:
        """One thing that happened."""
        self._observer.event(kind, **data)
        if kind in LOGGED:
            fields = {("fault" if key == "kind" else key): value for key, value in data.items()}
            self._logger.info(kind, **fields)


@contextmanager
def logging_to(directory: Path, observer: Observer) -> Iterator[Observer]:
    """An observer that also writes the run log while the context lasts."""
    import structlog

    from agentloop import __version__

    with (directory / FILE).open("a", encoding="utf-8", buffering=1) as file:
        logger = structlog.wrap_logger(
            structlog.WriteLogger(file),
            processors=[structlog.processors.TimeStamper(fmt="iso"), structlog.processors.JSONRenderer()],
            wrapper_class=structlog.BoundLogger,
        )
        logger.info("session", agentloop=__version__, pid=os.getpid())
        yield Logging(observer, logger)
