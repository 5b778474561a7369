"""Frozen values that cross the borders between parts. Plain data only: every field survives JSON.

Two encodings carry values of programs: *plain data* (`agentloop.plain`: tagged JSON for tuples, sets, NaN, ...) for
arguments and results of calls, and text for stdin and stdout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A value of JSON: None, bool, int, float, str, list, dict with str keys."""

Outcome = Literal["passed", "failed", "compile_error", "runtime_error", "timeout", "no_code"]
"""PROBE's six outcomes of a test, and of a candidate (that of its first test that did not pass)."""

OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "compile_error", "runtime_error", "timeout", "no_code")
NO_VISIBLE_SUITE = "no_visible_suite"
"""Stands in the place of an outcome, and is the stop reason, where a problem has no visible suite."""
STOP_REASONS = {
    "passed": "visible suite passed",
    "budget": "iterations used up",
    "repeat": "program repeated",
    NO_VISIBLE_SUITE: "no visible suite",
    "no_candidate": "no program at all",
}
"""Why attempts end, for people; a strategy may have reasons of its own, shown as they are."""
REPAIRABLE: tuple[Outcome, ...] = ("failed", "compile_error", "runtime_error", "timeout", "no_code")

LANGUAGES = ("python", "c", "cpp", "java", "rust")
"""What programs may be written in."""
LEAST_MEMORY = 16 * 2**20
"""The smallest limit of memory: below it not even an empty program of Python or C runs in every sandbox."""

TestKind = Literal["stdio", "call", "calls", "script"]
Trust = Literal["separate", "in_process"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test may use. `cpu`, `wall` in seconds, sizes in bytes. CPU time decides, wall is the backstop."""

    cpu: float = 4.0
    wall: float = 15.0
    memory: int = 512 * 2**20
    output: int = 256 * 2**10
    """Cap of each of stdout, stderr and the result channel."""
    processes: int = 32
    file_size: int = 32 * 2**20
    open_files: int = 128


def backstop(cpu: float) -> float:
    """Wall seconds where only CPU seconds are given: as far above them as by default, and no less than the default."""
    usual = Limits()
    return usual.wall * max(1.0, cpu / usual.cpu)


def memory_fault(memory: int) -> str:
    """Why a limit of memory is none that any program can keep to, or ''."""
    if memory >= LEAST_MEMORY:
        return ""
    meant = f"; {memory} MiB are {memory * 2**20}" if LEAST_MEMORY <= memory * 2**20 < 2**36 else ""
    return f"{memory} bytes are too little for any program, the least is {LEAST_MEMORY}{meant}"


@dataclass(frozen=True, slots=True)
class Test:
    """One test. Only the input side (`input`) ever enters a sandbox; `expected` and `checker` stay with us.

    `input` by kind: `stdio` {"stdin": str}; `call` {"function": str, "args": [plain], "kwargs": {str: plain}};
    `calls` {"function": str, "calls": JSON text of a list of args}: many calls in one process, all of which must agree;
    `script` {"code": str, "function": str}: code that calls the function through a proxy and raises when unhappy.
    `expected` by kind: `stdio` {"stdout": str}; `call` {"value": plain}; `calls` {"values": JSON text}; `script`
    None.
    `checker`: stdio "text" (trailing white space ignored), "exact", "tokens", "float:TOL", "python:SOURCE"; call and
    calls "equal", "equal:CONVERSION", "is", "truthy", "falsy", "close:TOL", "less:TOL", "isclose:REL:ABS", "json",
    "evalplus:TOL", "match" (all in `agentloop.compare`); script "script" (a process of its own) or "in_process"
    (beside the program, `trust` tells).
    """

    __test__ = False  # not a test class of pytest

    id: str
    kind: TestKind
    input: dict[str, Json]
    expected: dict[str, Json] | None
    checker: str
    show: str
    """The test as a person would write it (`assert f(1) == 2`, or stdin and stdout); shown in feedback if visible."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of one origin, in a fixed order."""

    name: Literal["visible", "hidden", "generated"]
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One statement with its suites, references and limits.

    `statement` is what the model reads (for HumanEval the prompt itself). `prelude` is the source that the statement
    gives and a reply may lack (imports, helper functions), put before a program that misses it.
    """

    id: str
    workload: str
    statement: str
    interface: Literal["function", "stdio"]
    visible: Suite
    hidden: Suite
    language: str = "python"
    entry_point: str | None = None
    prelude: str = ""
    stub: str = ""
    """Source up to where a body-only completion would go on ('' where the workload has none)."""
    references: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    notes: tuple[str, ...] = ()
    """What the loader changed, for people: a dropped example and why."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The program taken from a reply. `code` None: nothing found; `detail` then says why (empty, refusal, truncated).

    `rule` names the rule that found it, `added` what was put before it ("imports: math", "helper: poly").
    """

    code: str | None
    rule: str
    detail: str = ""
    added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One program with all tests of one suite: what a lane runs at a time."""

    language: str
    program: str
    tests: tuple[Test, ...]
    limits: Limits
    pool: Literal["loop", "grade"] = "loop"
    """Hidden tests run in the `grade` pool: lanes that no loop uses afterwards."""
    alone: bool = False
    """A confirmation run: no other job runs beside it."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Raw evidence of one job. `build` is the compile step's record or None; `tests` holds one record a test, in order.

    A record is the judge's JSON (see `agentloop/sandbox/judge.py`): exit, signal, wall, cpu, memory, limit, stdout,
    stderr, channel, truncated, skipped, checker. `seconds` is wall time of the whole job on our side.
    """

    build: dict[str, Json] | None
    tests: tuple[dict[str, Json], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """The verdict on one test, a pure function of evidence, expected value and checker."""

    __test__ = False

    test: str
    outcome: Outcome
    detail: str = ""
    """Exception name, signal, exit code, `memory_limit`, `output_limit`, `early_exit`, ..."""
    got: str = ""
    """What came out, as text, capped: repr of the value, stdout, or the traceback's last lines."""
    expected: str = ""
    trust: Trust = "separate"


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """The verdicts of one suite on one candidate; `outcome` and `detail` are those of the first that did not pass."""

    suite: str
    outcome: Outcome
    detail: str
    passed: int
    total: int
    tests: tuple[TestVerdict, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. `messages`: {"role", "content"}; `params`: temperature, top_p, max_tokens (those set)."""

    messages: tuple[dict[str, str], ...]
    params: dict[str, Json]
    seed: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. Tokens as the provider counted; `cost` in US dollars, None where no price is known."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost: float | None = None
    cached_tokens: int = 0
    served_model: str = ""


def problem_from(data: dict[str, Json]) -> Problem:
    """A problem from its fields as plain data (`dataclasses.asdict`)."""
    return Problem(
        **{
            **data,
            "visible": _suite(data["visible"]),
            "hidden": _suite(data["hidden"]),
            "references": tuple(data["references"]),
            "limits": Limits(**data["limits"]),
            "notes": tuple(data["notes"]),
        }
    )


def _suite(data: dict[str, Json]) -> Suite:
    return Suite(data["name"], tuple(Test(**test) for test in data["tests"]))
