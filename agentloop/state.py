"""The state of a loop: plain JSON, small, merged by reducers. LangGraph carries it; the runner logs how it changes.

Nodes return partial states and never edit in place. Every strategy uses `LoopState` or a TypedDict that extends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict


def branch_order(path: str) -> tuple[int, str]:
    """Sorts branch paths: the trunk, then its branches in their order ("2" before "10"), then theirs."""
    return len(path), path


def place_order(place: tuple[str, int]) -> tuple[tuple[int, str], int]:
    """Sorts candidates by their (branch path, index)."""
    return branch_order(place[0]), place[1]


def best_visible(ranks: Sequence[tuple[bool, int, bool]]) -> int:
    """Which candidate is submitted, of one or more in order of generation: the place of its rank.

    A rank says whether the candidate passes the visible suite, how many of its tests, and whether there is a program.
    The first that passes counts, else the highest rank, the latest of equals.
    """
    passing = (place for place, rank in enumerate(ranks) if rank[0])
    return next(passing, max(range(len(ranks)), key=lambda place: (ranks[place], place)))


def append(old: list[Any] | None, new: list[Any]) -> list[Any]:
    """Reducer: lists grow. Entries of parallel branches are ordered by `path`, never by arrival."""
    merged = [*(old or []), *new]
    if new and isinstance(new[0], dict) and "path" in new[0]:
        merged.sort(key=lambda entry: branch_order(entry["path"]))
    return merged


def add(old: dict[str, float] | None, new: dict[str, float]) -> dict[str, float]:
    """Reducer: counters add up key by key."""
    merged = dict(old or {})
    for key, value in new.items():
        merged[key] = merged.get(key, 0) + value
    return merged


class Message(TypedDict):
    """One message of a dialogue."""

    role: str
    content: str


class Candidate(TypedDict):
    """One program of one iteration with its visible verdict. `code` None: no program was found in the reply."""

    index: int
    """Number of the iteration on its branch path, from 0."""
    path: str
    code: str | None
    rule: str
    """Extraction rule that found the program."""
    added: list[str]
    """What was put before it (imports and helpers of the prompt)."""
    outcome: str
    detail: str
    passed: int
    total: int
    failure: dict[str, Any] | None
    """The first visible test that did not pass: test, show, got, expected; None if all passed."""
    report: str
    signature: str
    """Identity of the failure: two candidates with the same signature fail the same way."""
    ast: str
    """Digest of the syntax tree; equal digests are the same program up to layout and comments."""
    same_program: int | None
    """Index of the earliest earlier candidate that is the same program, or None."""
    same_failure: int | None
    """Index of the earliest earlier candidate that failed the same way, or None."""
    execution: str | None
    """Key of the evidence in the journal."""


class Decision(TypedDict):
    """Where the loop goes next and why. Conditional edges read `go`; the transition log keeps all of it."""

    go: str
    reason: str


class LoopState(TypedDict):
    """What every loop carries. All keys are optional at the start; the runner gives `path`."""

    path: NotRequired[str]
    """Branch path, '' on the trunk; given by the graph (`Send`), never by arrival order."""
    messages: NotRequired[list[Message]]
    """The dialogue as the next request will send it."""
    reply: NotRequired[str]
    finish_reason: NotRequired[str]
    code: NotRequired[str | None]
    extraction: NotRequired[dict[str, Any]]
    candidates: NotRequired[Annotated[list[Candidate], append]]
    heat: NotRequired[float | None]
    """Temperature of the next requests where it is not the experiment's."""
    restarts: NotRequired[int]
    decision: NotRequired[Decision]
    charged: NotRequired[Annotated[dict[str, float], add]]
    """Charged so far: calls, prompt_tokens, completion_tokens, cost, model_seconds, executions, tokens:ROLE."""
    first: NotRequired[int]
    """Number of candidates before the wrapped loop began: its own budget counts from here."""
    limit: NotRequired[int | None]
    """Candidates that all starts of a wrapped loop together may use."""
    nudge: NotRequired[bool]
    feedback: NotRequired[dict[str, Any]]
    """The exact text that went to the model: text, template, author, tests shown."""
    memory: NotRequired[list[str]]
    """Reflections kept for later prompts."""
    explanation: NotRequired[str]
    submitted: NotRequired[dict[str, Any] | None]
    """{"path", "index"} of the submitted candidate, with the rule that chose it."""
    stop_reason: NotRequired[str]
