"""Every error of agentloop, and what each means for a score.

Three families, told apart because different people pay for them:

* `UserError`: the input is wrong (a name, a key, a file, a flag). One clear line, exit status 2, nothing started.
* `Fault`: the infrastructure failed (`sandbox_error`, `model_error`, `cancelled`). Retried, recorded under a try,
  shown, never a verdict on a program, never dropped from the denominator in silence.
* A program that fails its tests is *not* an error at all: it is a verdict (see `agentloop.verdict`).

`JournalMiss` and `Divergence` belong to replay: the stored history does not answer what the graph asks.
"""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

IN_A_ROW = 8
"""So many faults without a success between them: the infrastructure is down, go on no further."""


NOT_UTF_8 = "not UTF-8: convert it first (iconv -f LATIN1 -t UTF-8, or whatever it is in)"


class AgentloopError(Exception):
    """Base of all errors that agentloop raises on purpose. `str(error)` is one line fit to be shown."""

    exit_status: ClassVar[int] = 1


class UserError(AgentloopError):
    """Something the user gave cannot be used. The message says what, where, and what to do."""

    exit_status: ClassVar[int] = 2


class Fault(AgentloopError):
    """Not the program's doing. `kind` is the fault's name in the store; `retryable`: the same call may succeed."""

    kind: ClassVar[str] = "fault"
    exit_status: ClassVar[int] = 3

    def __init__(self, message: str, *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        """Seconds that the provider asked to wait, where it did."""


class SandboxError(Fault):
    """The engine, a lane or the judge failed; says nothing about the program."""

    kind: ClassVar[str] = "sandbox_error"


class ModelError(Fault):
    """The provider failed or refused: rate limit, network, authentication, context window."""

    kind: ClassVar[str] = "model_error"


class Cancelled(Fault):
    """The attempt was stopped from outside: Ctrl-C, or a ceiling of the run was reached."""

    kind: ClassVar[str] = "cancelled"


class JournalMiss(AgentloopError):
    """The journal holds no answer for what the graph asks, and nothing may be asked live (replay)."""


class Divergence(AgentloopError):
    """A re-driven graph took another transition than the stored one.

    `path` and `step` say where, `step` None where it is not one transition (a verdict, a missing end).
    """

    def __init__(self, message: str, path: str = "", step: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.step = step


def innermost(error: BaseException) -> BaseException:
    """The error itself, out of the groups that tasks running side by side wrap it in (the first, of several)."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def unknown_name(what: str, name: str, known: Iterable[str], instead: str = "") -> UserError:
    """A `UserError` for a name that is not known: the nearest known one, or what was meant `instead`; and all."""
    names = sorted(known)
    lower = {each.lower(): each for each in reversed(names)}
    typed = name.lower().replace("+", "p")  # C++ is cpp
    near = get_close_matches(typed, lower, n=1, cutoff=0.5)
    meant = instead or (lower[near[0]] if near else "")
    hint = f"did you mean {meant!r}? " if meant else ""
    return UserError(f"unknown {what} {name!r}: {hint}known: {', '.join(names) or 'none'}")


def missing(what: str, path: Path, others: Iterable[Path]) -> UserError:
    """A `UserError` for a path that is not there: it gives the nearest by name of those that are."""
    there = {other.name: other for other in reversed(list(others))}
    near = get_close_matches(path.name, there, n=1, cutoff=0.6)
    return UserError(what + (f": did you mean {there[near[0]]}?" if near else ""))


def unreadable(what: str, path: Path, error: OSError) -> UserError:
    """A `UserError` for a file that cannot be read; where it is not there, with the nearest beside it."""
    beside: list[Path] = []
    if isinstance(error, FileNotFoundError):
        with suppress(OSError):
            beside = sorted(other for other in path.parent.iterdir() if other.suffix == path.suffix)
    return missing(f"cannot read {what} {path}: {error.strerror or error}", path, beside)


def unmatched(pattern: str, ids: list[str]) -> UserError:
    """A `UserError` for a problem id or glob that matches none of these: it gives the nearest ids."""
    near = get_close_matches(pattern, ids, n=3, cutoff=0.4) or ids[:3]
    return UserError(f"no problem matches {pattern!r}: nearest: {', '.join(near)} ({len(ids)} in all)")
