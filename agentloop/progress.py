"""What a run tells while it goes: a live display on a terminal, plain lines elsewhere, or nothing (`--quiet`).

Kinds of event: "phase" text= (what is being started); "notice" text= (one line that is always shown); "download" what=,
done=, total= (bytes); "plan" total= (0: not known), reused=, unit= ("attempts" where it is not said); "started" and
"done" with attempt=, problem=, strategy=, model= ("done" also visible= and hidden=, the submitted program's outcomes,
hidden '' where ungraded, and iterations=); "judged" outcome=, suite= (of a stored program); "fault" kind=, text=, and
where= for what is no attempt; "spent" tokens=, cost= (this run's live calls so far); "replayed" attempts=.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Group

SECONDS, ATTEMPTS, LEAST = 5.0, 10, 1.0
"""Plain lines: one after so many seconds or attempts, whichever comes first, but none sooner than `LEAST` seconds."""
BAR = 60
"""Columns of the live display's bar."""
FAULTS = 5
"""So many faults are shown as they come; the rest are counted."""


class Observer(Protocol):
    """Is told what happens."""

    def event(self, kind: str, /, **data: Any) -> None:
        """One thing that happened."""


class Shown(Observer, Protocol):
    """An observer of a run that also is a context manager around it."""

    def __enter__(self) -> Shown:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing; what is on the screen stays."""


@dataclass
class Tally:
    """What has happened so far."""

    unit: str = "attempts"
    total: int = 0
    reused: int = 0
    done: int = 0
    faults: int = 0
    suite: str = "visible"
    running: set[int] = field(default_factory=set)
    visible: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    """Outcomes of the submitted programs; '' where there is no such suite."""
    tokens: float = 0
    cost: float = 0
    began: float = field(default_factory=time.monotonic)

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Count an event."""
        if kind == "plan":
            self.total, self.began = data["total"], time.monotonic()
            self.unit = data.get("unit", self.unit)
            self.reused = min(data["reused"], self.total or data["reused"])
        elif kind == "started":
            self.running.add(data["attempt"])
        elif kind == "done":
            self.running.discard(data["attempt"])
            self.done += 1
            self.visible[data["visible"]] += 1
            self.hidden[data["hidden"]] += 1
        elif kind == "judged":
            self.suite, self.done = data["suite"], self.done + 1
            self.visible[data["outcome"]] += 1
        elif kind == "fault":
            self.running.discard(data.get("attempt", -1))
            self.faults += data["kind"] != "cancelled"
        elif kind == "spent":
            self.tokens, self.cost = data["tokens"], data["cost"]
        elif kind == "replayed":
            self.done = data["attempts"]

    def shows(self, kind: str, data: dict[str, Any]) -> bool:
        """Whether an event is a fault worth a line of its own; what the user stopped is none."""
        return kind == "fault" and data["kind"] != "cancelled" and self.faults <= FAULTS

    def line(self, *, over: bool = False) -> str:
        """The state in one line. Suites are named; time left is at the pace so far."""
        so_far = self.reused + self.done
        parts = [f"{so_far} of {self.total} {self.unit} done" if self.total else f"{counted(so_far, self.unit)} done"]
        if self.running:
            parts.append(f"{len(self.running)} running")
        if self.faults:
            parts.append(counted(self.faults, "faults"))
        new = f" of {self.done} new" if self.reused else ""  # what was done before is not among the outcomes
        if self.visible:
            ordered = sorted(self.visible.items(), key=lambda item: (item[0] != "passed", -item[1]))
            seen = ", ".join(f"{outcome or 'no suite'} {count}" for outcome, count in ordered)
            parts.append(f"{self.suite} suite{new}: {seen}")
        if graded := self.hidden.total() - self.hidden[""]:
            parts.append(f"hidden suite{new}: passed {self.hidden['passed']} of {graded}")
        if self.tokens:
            parts.append(f"{self.tokens:,.0f} tokens" + (f", ${self.cost:.4f}" if self.cost else ""))
        left = self.total - self.reused - self.done
        if self.done and left > 0 and not over:
            parts.append(f"{duration((time.monotonic() - self.began) / self.done * left)} left")
        return " | ".join(parts)


class Quiet:
    """Shows nothing."""

    def event(self, kind: str, /, **data: Any) -> None:
        """Nothing."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Plain:
    """Lines for a log file or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._tally = stream, Tally()
        self._said, self._at, self._download = 0, time.monotonic(), ""

    def event(self, kind: str, /, **data: Any) -> None:
        """Count it, and say a line where one is due."""
        self._tally.take(kind, data)
        if kind in ("phase", "notice"):
            self._say(data["text"])
        elif kind == "download" and data["what"] != self._download:
            self._download = data["what"]
            self._say(f"downloading {data['what']}{size(data['total'])}")
        elif kind == "plan":
            before = f", {data['reused']} of them done before" if data["reused"] else ""
            total = counted(data["total"], self._tally.unit) if data["total"] else f"so far no {self._tally.unit}"
            self._say(f"{total}{before}")
        elif self._tally.shows(kind, data):
            self._say(fault_line(data))
        elif kind in ("done", "judged", "replayed", "spent") and self._due():
            self._say(self._tally.line())
            self._said, self._at = self._tally.done, time.monotonic()

    def _due(self) -> bool:
        waited = time.monotonic() - self._at
        return waited >= SECONDS or (waited >= LEAST and self._tally.done >= self._said + ATTEMPTS)

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tally.done > self._said:
            self._say(self._tally.line(over=True))


class Live:
    """A bar and a line that stay at the foot of the terminal; notices and faults scroll above them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as Display

        self._tally, self._phase = Tally(), ""
        self._display = Display(
            console=Console(stderr=True), get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def _render(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        if not self._tally.total:
            return Group(Text(self._phase, overflow="ellipsis", no_wrap=True))
        width = min(BAR, self._display.console.width)
        full = width * (self._tally.reused + self._tally.done) // self._tally.total
        bar = Text("━" * full, style="green").append("─" * (width - full), style="dim")
        return Group(bar, Text(self._tally.line()))

    def event(self, kind: str, /, **data: Any) -> None:
        """Count it; the display looks at the counts four times a second."""
        self._tally.take(kind, data)
        if kind == "phase":
            self._phase = data["text"] + " ..."
        elif kind == "download":
            done = f"{data['done'] / 2**20:,.0f} MiB"
            self._phase = f"downloading {data['what']}: {done}{size(data['total'])}"
        elif kind == "notice" or self._tally.shows(kind, data):
            text = data["text"] if kind == "notice" else fault_line(data)
            self._display.console.print(text, markup=False, highlight=False)

    def __enter__(self) -> Live:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
        if self._tally.total:
            self._display.console.print(self._tally.line(over=True), markup=False, highlight=False)


def watch(quiet: bool) -> Shown:
    """The observer for this process's standard error."""
    if quiet:
        return Quiet()
    return Live() if sys.stderr.isatty() else Plain(sys.stderr)


def fault_line(data: dict[str, Any]) -> str:
    """A fault in one line: no verdict, and what becomes of it."""
    where = data.get("where") or f"attempt {data['attempt']} ({data['problem']}, {data['strategy']})"
    return f"fault in {where}: {data['kind']}: {data['text']}"


def counted(number: int, unit: str) -> str:
    """A number of things, whose name is a regular plural: `1 program`, `2 programs`."""
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}"


def size(total: int | None) -> str:
    """How much a download is in all, where that is known."""
    return f" of {total / 2**20:,.0f} MiB" if total else ""


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
