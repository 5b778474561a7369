"""Verdicts: a pure function of evidence, expected values and checkers. Nothing runs here.

Per test, the first that applies: the build failed (`compile_error`); the test was not run because too many before it
timed out (`timeout`, detail `skipped`); a limit of time (`timeout`), memory (`memory_limit`) or output
(`output_limit`); a signal; no answer at all (`early_exit`); an exception (its name); then the comparison. A test that
was not run, or left no answer, never passed.

Scripts: a false assertion is `failed`. An exception that the program raised is `runtime_error`. An exception of the
script itself is `failed` with its name: such a script trips over a wrong value (`f(x)[0]` on None), and its references
pass.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from agentloop.compare import text_agrees, value_agrees
from agentloop.errors import SandboxError
from agentloop.plain import TooDeep, Unplain, cap, decode, loads, to_source
from agentloop.types import Execution, Json, Outcome, Suite, SuiteVerdict, Test, TestVerdict, Trust

# Linux's numbers: the judge always runs on Linux, the host that judges may not.
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ",
    31: "SIGSYS",
}  # fmt: skip
_EXCEPTION = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?::|$)")
_JAVA = re.compile(r'^Exception in thread "[^"\n]*" ((?:\w+\.)*[\w$]+)', re.MULTILINE)
_PANIC = re.compile(r"^thread '[^'\n]*'(?: \(\d+\))? panicked at ", re.MULTILINE)
_COMPILER = re.compile(
    r"^(?:[^\s:]+:(?:\d+:){0,2} )?(?:fatal )?(error(?:\[\w+\])?: .*)$"
    r"|^.*\b(undefined reference to .*|multiple definition of [^;\n]*)",
    re.MULTILINE,
)
_LIMITS: dict[str, tuple[Outcome, str]] = {
    "cpu": ("timeout", "cpu_limit"),
    "wall": ("timeout", "wall_limit"),
    "memory": ("runtime_error", "memory_limit"),
    "output": ("runtime_error", "output_limit"),
}
_Result = tuple[Outcome, str, str]
"""outcome, detail, what was got"""


def judge(suite: Suite, execution: Execution) -> SuiteVerdict:
    """The verdict on one candidate's run of a suite.

    Raises `ValueError` for a suite without tests (nothing run is never a pass) or an unknown checker, and
    `SandboxError` when the evidence does not hold one record for each test.
    """
    if not suite.tests:
        raise ValueError(f"the {suite.name} suite has no tests: there is nothing to judge")
    build = _build(execution.build)
    if build is None and len(execution.tests) != len(suite.tests):
        raise SandboxError(f"{len(execution.tests)} records for {len(suite.tests)} tests of the {suite.name} suite")
    verdicts = []
    for index, test in enumerate(suite.tests):
        one, result = test, build
        if result is None and test.kind == "calls":
            one, result = _first_wrong(test, execution.tests[index])
        outcome, detail, got = result or _test(test, execution.tests[index])
        trust: Trust = "in_process" if test.checker == "in_process" else "separate"
        expected = cap(_expected(one))
        verdicts.append(TestVerdict(test.id, outcome, cap(detail, 100), cap(got), expected, trust))
    first = next((verdict for verdict in verdicts if verdict.outcome != "passed"), None)
    return SuiteVerdict(
        suite=suite.name,
        outcome=first.outcome if first else "passed",
        detail=first.detail if first else "",
        passed=sum(verdict.outcome == "passed" for verdict in verdicts),
        total=len(verdicts),
        tests=tuple(verdicts),
    )


def _build(record: dict[str, Json] | None) -> _Result | None:
    """The result of every test when the build step failed, else None. A limit of the build is a detail of its own."""
    if record is None or (record["exit"] == 0 and not record["limit"]):
        return None
    stderr = record["stderr"] or record["stdout"]
    if record["limit"]:
        return "compile_error", f"build_{record['limit']}_limit", _tail(stderr)
    if record["signal"] is not None:
        return "compile_error", _signal(record["signal"]), _tail(stderr)
    if error := _COMPILER.search(stderr):  # a compiler's first error counts; a traceback's last line does
        return "compile_error", (error[1] or error[2]).rstrip(), _head(stderr[error.start() :])
    return "compile_error", exception_name(stderr) or f"exit {record['exit']}", _tail(stderr)


def _test(test: Test, record: dict[str, Json]) -> _Result:
    if record.get("skipped"):
        return "timeout", "skipped", f"not run: {record['skipped']}"
    if test.kind == "script":
        return _script(test, record)
    if stopped := _stopped(record):
        return stopped
    stream = "stdout" if test.kind == "stdio" else "channel"
    if stream in record.get("truncated", ()):
        return "runtime_error", "output_limit", _tail(record["stderr"])
    return _stdio(test, record) if test.kind == "stdio" else _call(test, record)


def _stopped(record: dict[str, Json]) -> _Result | None:
    """Limits and signals, which hold for every kind of test."""
    limit = record["limit"] or ("cpu" if record["signal"] == 24 else None)  # SIGXCPU: the kernel's own backstop
    if limit:
        outcome, detail = _LIMITS[limit]
        return outcome, detail, _tail(record["stderr"])
    if record["signal"] is not None:
        return "runtime_error", _signal(record["signal"]), _tail(record["stderr"])
    return None


def _stdio(test: Test, record: dict[str, Json]) -> _Result:
    if record["exit"] != 0:
        answer = _answer(record)  # the driver tells of an exception that nobody caught
        if answer is not None and "exception" in answer:
            return _raised(answer["exception"])
        detail = _last_words(record["stderr"]) or f"exit {record['exit']}"
        return "runtime_error", detail, _tail(record["stderr"] or record["stdout"])
    assert test.expected is not None
    agrees = text_agrees(test.checker, record["stdout"], test.expected["stdout"], test.input["stdin"])
    return "passed" if agrees else "failed", "", record["stdout"]


def _call(test: Test, record: dict[str, Json]) -> _Result:
    answer = _answer(record)
    if answer is None:
        left = f"the program left before it answered (exit {record['exit']})"
        return "runtime_error", "early_exit", f"{left}\n{_tail(record['stderr'])}".rstrip()
    if "exception" in answer:
        return _raised(answer["exception"])
    if "unplain" in answer:
        got = f"<{answer['unplain']}>"
        agrees = test.checker == "truthy" or (test.checker == "match" and (test.expected or {})["value"] is True)
        return ("passed", "", got) if agrees else ("failed", "unplain", got)
    try:
        got = decode(answer["value"])
    except (KeyError, Unplain) as error:
        return "failed", "unplain", f"<{error}>"
    expected = decode(test.expected["value"]) if test.expected else None
    return "passed" if value_agrees(test.checker, got, expected) else "failed", "", to_source(answer["value"])


def _first_wrong(test: Test, record: dict[str, Json]) -> tuple[Test, _Result | None]:
    """The first call of many that did not agree, as a test of its own, and its result: None for what stopped them all.

    Without one the last call stands for all of them.
    """
    one = replace(test, expected={"value": None}, checker="truthy")
    if record.get("skipped") or _stopped(record) or "channel" in record.get("truncated", ()):
        return one, None
    lines = (record["channel"] or "").splitlines()
    calls, values = json.loads(test.input["calls"]), json.loads((test.expected or {})["values"])
    result: _Result = ("runtime_error", "early_exit", "there was no call")
    for number, (args, value) in enumerate(zip(calls, values, strict=True)):
        one = replace(test, expected={"value": value})
        result = _call(one, {**record, "channel": lines[number] if number < len(lines) else ""})
        if result[0] != "passed":
            source = f"{test.input['function']}({', '.join(to_source(each, 300) for each in args)})"
            return one, (result[0], result[1], f"{source}: {result[2]}")
    return one, result


def _script(test: Test, record: dict[str, Json]) -> _Result:
    """The checker process decides where it answered; what stopped the program counts where it did not.

    `in_process` scripts share the program's process, so the program's own record holds the answer.
    """
    checker = record.get("checker") if test.checker == "script" else record
    if checker is None:
        raise SandboxError(f"no record of the checker of test {test.id}")
    for each in (record, checker):
        if each["limit"] and (stopped := _stopped(each)):
            return stopped
    answer = _answer(checker)
    if answer is not None and answer.get("ok") is True:
        return "passed", "", ""
    if answer is not None and "assertion" in answer:
        return "failed", "", str(answer["assertion"])
    if stopped := _stopped(record):
        return stopped
    if answer is not None and isinstance(answer.get("exception"), dict):
        _, detail, got = _raised(answer["exception"])
        # A program that does not load never comes to a script, which would say whose exception it is.
        return "runtime_error" if answer.get("from", "program") == "program" else "failed", detail, got
    return "runtime_error", "early_exit", f"the test script did not finish\n{_tail(record['stderr'])}".rstrip()


def _answer(record: dict[str, Json]) -> dict[str, Json] | None:
    """The one JSON object that a driver wrote to its channel; None when there is none."""
    try:
        answer = loads(record["channel"] or "")
    except TooDeep as error:
        return {"unplain": f"a value {error}"}
    except Unplain:
        return None
    return answer if isinstance(answer, dict) else None


def _raised(exception: Json) -> _Result:
    if not isinstance(exception, dict):
        exception = {}
    name = str(exception.get("type") or "Exception")
    text = str(exception.get("traceback") or f"{name}: {exception.get('message', '')}")
    if name in ("SystemExit", "ProgramGone"):  # the second is the proxy's word for a process that is no more
        return "runtime_error", "early_exit", _tail(text)
    return "runtime_error", name, _tail(text)


def exception_name(stderr: str) -> str:
    """The exception that ended a Python process, from its traceback: '' when there is none.

    The line that names it is the first one without indentation after the last "Traceback" line, because the message
    may itself have several lines. Errors of the compiler have no such header: the last line that looks like one counts.
    """
    _, header, tail = stderr.rpartition("Traceback (most recent call last):")
    lines = (tail if header else stderr).splitlines()
    matches = [match[1] for line in lines if (match := _EXCEPTION.match(line))]
    if not matches:
        return ""
    return (matches[0] if header else matches[-1]).rpartition(".")[2]


def _last_words(stderr: str) -> str:
    """What a program that gave up said of the reason: an exception's name, `panic`, or '' if nothing.

    A Java heap has the size of the memory limit, so the program that finds it full is over that limit.
    """
    if java := _JAVA.search(stderr):
        name = java[1].rpartition(".")[2]
        return "memory_limit" if name == "OutOfMemoryError" else name
    return "panic" if _PANIC.search(stderr) else exception_name(stderr)


def _signal(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def _head(text: str) -> str:
    """The beginning of a compiler's messages."""
    return _fitting(text.rstrip().splitlines()[:20], drop=-1)


def _tail(text: str) -> str:
    """The end of an error text."""
    return _fitting(text.rstrip().splitlines()[-20:], drop=0)


def _fitting(lines: list[str], drop: int) -> str:
    """So many whole lines as have 1,200 characters, but one at least; `drop`: from which end they go."""
    while len(lines) > 1 and sum(map(len, lines)) + len(lines) > 1200:
        lines.pop(drop)
    return "\n".join(lines)


def _expected(test: Test) -> str:
    name, _, parameter = test.checker.partition(":")
    if test.kind == "stdio":
        return str(test.expected["stdout"]) if test.expected else ""
    if test.kind == "script" or name in ("truthy", "falsy"):
        return {"truthy": "a true value", "falsy": "a false value"}.get(name, "")
    value = to_source(test.expected["value"]) if test.expected else ""
    if name in ("less", "close"):
        return f"{value} within {parameter}"
    if name == "isclose":
        return f"about {value}"
    return f"{value} after {parameter}" if name == "equal" and parameter else value
