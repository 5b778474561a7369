"""Verdicts from hand-made evidence: which outcome, which detail, and that nothing untested passes."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from agentloop.compare import text_agrees, value_agrees
from agentloop.errors import SandboxError
from agentloop.plain import decode, encode
from agentloop.types import Execution, Suite, Test
from agentloop.verdict import exception_name, judge

HEADER = "Traceback (most recent call last):\n"
TRACE = f'{HEADER}  File "main.py", line 2, in f\n    x[9]\nIndexError: out of range\nsecond line'


def record(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "exit": 0, "signal": None, "limit": None, "wall": 0.1, "cpu": 0.1, "memory": 10, "stdout": "", "stderr": "",
        "channel": None, "truncated": [], "bytes": {"stdout": 0, "stderr": 0}, "encoding": "utf-8", "checker": None,
    }  # fmt: skip
    return base | changes


def value(of: Any) -> dict[str, Any]:
    return record(channel=json.dumps({"value": encode(of)}) + "\n")


def exception(kind: str, **more: Any) -> str:
    fields = {"type": kind, "message": "m", "traceback": f"Traceback:\n  line\n{kind}: m", "where": "call"}
    return json.dumps({"exception": fields, **more})


def call(expected: Any = 1, checker: str = "equal", id: str = "v1") -> Test:
    hidden = None if checker in ("truthy", "falsy") else {"value": encode(expected)}
    return Test(id, "call", {"function": "f", "args": [], "kwargs": {}}, hidden, checker, "assert f() == 1")


def stdio(expected: str = "1\n", checker: str = "text") -> Test:
    return Test("v1", "stdio", {"stdin": ""}, {"stdout": expected}, checker, "")


def script(checker: Literal["script", "in_process"] = "script") -> Test:
    return Test("v1", "script", {"code": "assert f()", "function": "f"}, None, checker, "")


def run(test: Test, evidence: dict[str, Any]) -> tuple[str, str]:
    verdict = judge(Suite("visible", (test,)), Execution(record(), (evidence,), 0.1))
    assert verdict.outcome == verdict.tests[0].outcome
    assert verdict.passed == (verdict.outcome == "passed")
    return verdict.outcome, verdict.detail


def test_a_suite_without_tests_is_no_pass() -> None:
    with pytest.raises(ValueError, match="no tests"):
        judge(Suite("visible", ()), Execution(None, (), 0.0))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_records_must_be_those_of_the_tests(count: int) -> None:
    suite = Suite("hidden", (call(), call(id="v2")))
    with pytest.raises(SandboxError):
        judge(suite, Execution(record(), (value(1),) * count, 0.0))


SYNTAX = '  File "main.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize(
    ("build", "detail"),
    [
        (record(exit=1, stderr=SYNTAX), "SyntaxError"),
        (record(exit=1, stderr=SYNTAX.replace("SyntaxError", "IndentationError")), "IndentationError"),
        (record(exit=None, signal=9, limit="wall"), "build_wall_limit"),
        (record(exit=None, signal=9, limit="memory"), "build_memory_limit"),
        (record(exit=None, signal=11), "SIGSEGV"),
        (record(exit=1, stderr="a.cpp: In function 'f':\na.cpp:1:5: error: expected ';'"), "error: expected ';'"),
        (record(exit=1, stderr="a.c:1:10: fatal error: x.h: No such file\n"), "error: x.h: No such file"),
        (record(exit=1, stderr="Main.java:3: error: cannot find symbol\n  x\n"), "error: cannot find symbol"),
        (record(exit=1, stderr="error[E0308]: mismatched types\n --> main.rs:1:1"), "error[E0308]: mismatched types"),
        (
            record(exit=1, stderr="a.c:(.text+0x5): undefined reference to `f'\ncollect2: error: ld returned 1"),
            "undefined reference to `f'",
        ),
        (record(exit=2, stderr="no word of the reason"), "exit 2"),
    ],
)
def test_a_failed_build_is_a_compile_error_of_every_test(build: dict[str, Any], detail: str) -> None:
    verdict = judge(Suite("visible", (call(), call(id="v2"))), Execution(build, (), 0.1))
    assert [test.outcome for test in verdict.tests] == ["compile_error"] * 2
    assert (verdict.outcome, verdict.detail, verdict.passed, verdict.total) == ("compile_error", detail, 0, 2)


EVERYTHING = value(1)["channel"]


@pytest.mark.parametrize("test", [call(), stdio(), script()], ids=["call", "stdio", "script"])
@pytest.mark.parametrize(
    ("changes", "outcome", "detail"),
    [
        ({"limit": "cpu"}, "timeout", "cpu_limit"),
        ({"limit": "wall"}, "timeout", "wall_limit"),
        ({"limit": "memory"}, "runtime_error", "memory_limit"),
        ({"limit": "output"}, "runtime_error", "output_limit"),
        ({"skipped": "2 tests timed out"}, "timeout", "skipped"),
    ],
)
def test_limits_come_before_everything(test: Test, changes: dict[str, Any], outcome: str, detail: str) -> None:
    ok = record(channel='{"ok": true}')
    evidence = record(exit=None, signal=9, channel=EVERYTHING, stdout="1\n", checker=ok, **changes)
    assert run(test, evidence) == (outcome, detail)


@pytest.mark.parametrize(
    ("evidence", "outcome", "detail"),
    [
        (record(exit=None, signal=11, channel=EVERYTHING), "runtime_error", "SIGSEGV"),
        (record(exit=None, signal=24), "timeout", "cpu_limit"),
        (record(exit=None, signal=64), "runtime_error", "signal 64"),
        (record(), "runtime_error", "early_exit"),
        (record(exit=0, channel=""), "runtime_error", "early_exit"),
        (record(exit=3, channel='{"val'), "runtime_error", "early_exit"),
        (record(channel="[1]"), "runtime_error", "early_exit"),
        (record(channel=EVERYTHING, truncated=["channel"]), "runtime_error", "output_limit"),
        (record(channel=EVERYTHING, truncated=["stderr"]), "passed", ""),
        (record(channel=exception("KeyError")), "runtime_error", "KeyError"),
        (record(channel=exception("AssertionError")), "runtime_error", "AssertionError"),
        (record(channel=exception("SystemExit")), "runtime_error", "early_exit"),
        (record(channel='{"exception": 5}'), "runtime_error", "Exception"),
        (record(channel='{"unplain": "Node"}'), "failed", "unplain"),
        (record(channel='{"value": {"set": [[1]]}}'), "failed", "unplain"),
        (record(channel='{"value": {"complex": [{"int": "0x%s"}, 1]}}' % ("f" * 400)), "failed", "unplain"),
        (record(channel='{"value": ' + "[" * 400 + "]" * 400 + "}"), "failed", "unplain"),
        (record(channel='{"nothing": 1}'), "failed", "unplain"),
        (value(2), "failed", ""),
        (value(1), "passed", ""),
    ],
)
def test_calls(evidence: dict[str, Any], outcome: str, detail: str) -> None:
    assert run(call(), evidence) == (outcome, detail)


def test_an_object_that_cannot_leave_is_true_as_objects_are() -> None:
    evidence = record(channel='{"unplain": "re.Match"}')
    assert run(call(checker="truthy"), evidence) == ("passed", "")
    assert run(call(checker="falsy"), evidence) == ("failed", "unplain")


@pytest.mark.parametrize(
    ("evidence", "outcome", "detail"),
    [
        (record(stdout="1\n"), "passed", ""),
        (record(stdout="2\n"), "failed", ""),
        (record(exit=1, stdout="1\n", stderr=TRACE), "runtime_error", "IndexError"),
        (record(exit=1, channel=exception("ZeroDivisionError"), stderr="noise"), "runtime_error", "ZeroDivisionError"),
        (record(exit=7, stdout="1\n"), "runtime_error", "exit 7"),
        (record(exit=1, stderr="lower case words"), "runtime_error", "exit 1"),
        (record(stdout="1\n", truncated=["stdout"]), "runtime_error", "output_limit"),
        (record(exit=None, signal=6, stdout="1\n"), "runtime_error", "SIGABRT"),
    ],
)
def test_programs_on_stdin_and_stdout(evidence: dict[str, Any], outcome: str, detail: str) -> None:
    assert run(stdio(), evidence) == (outcome, detail)


def checked(channel: str | None, **program: Any) -> dict[str, Any]:
    return record(checker=record(channel=channel), **program)


@pytest.mark.parametrize(
    ("evidence", "outcome", "detail"),
    [
        (checked('{"ok": true}'), "passed", ""),
        (checked('{"ok": true}', exit=None, signal=9), "passed", ""),
        (checked('{"ok": 1}'), "runtime_error", "early_exit"),
        (checked('{"assertion": "assert f()"}'), "failed", ""),
        (checked(exception("ValueError", **{"from": "program"})), "runtime_error", "ValueError"),
        (checked(exception("AssertionError")), "runtime_error", "AssertionError"),
        (checked(exception("TypeError", **{"from": "script"})), "failed", "TypeError"),
        (checked(exception("ProgramGone", **{"from": "program"})), "runtime_error", "early_exit"),
        (checked(exception("ProgramGone", **{"from": "program"}), exit=None, signal=11), "runtime_error", "SIGSEGV"),
        (checked(None), "runtime_error", "early_exit"),
        (record(checker=record(limit="wall")), "timeout", "wall_limit"),
        (record(channel='{"ok": true}', checker=record(channel=None)), "runtime_error", "early_exit"),
    ],
)
def test_scripts(evidence: dict[str, Any], outcome: str, detail: str) -> None:
    assert run(script(), evidence) == (outcome, detail)


def test_a_script_in_the_program_process_says_so() -> None:
    suite = Suite("hidden", (script("in_process"),))
    verdict = judge(suite, Execution(None, (record(channel='{"ok": true}'),), 0.1))
    assert (verdict.outcome, verdict.tests[0].trust) == ("passed", "in_process")
    assert judge(suite, Execution(None, (record(),), 0.1)).detail == "early_exit"
    assert (
        judge(Suite("hidden", (script(),)), Execution(None, (checked('{"ok": true}'),), 0.1)).tests[0].trust
        == "separate"
    )


def test_a_checker_that_left_no_record_is_no_verdict() -> None:
    with pytest.raises(SandboxError):
        run(script(), record())


def test_the_first_failing_test_gives_the_outcome_and_all_are_counted() -> None:
    suite = Suite("visible", (call(), call(id="v2"), call(id="v3")))
    verdict = judge(suite, Execution(record(), (value(1), value(5), record(limit="cpu")), 0.1))
    assert (verdict.outcome, verdict.passed, verdict.total) == ("failed", 1, 3)
    assert [test.outcome for test in verdict.tests] == ["passed", "failed", "timeout"]
    assert (verdict.tests[1].got, verdict.tests[1].expected) == ("5", "1")


def test_what_is_shown_is_capped() -> None:
    verdict = judge(Suite("visible", (stdio("x" * 10_000),)), Execution(None, (record(stdout="y\n" * 10_000),), 0.1))
    assert len(verdict.tests[0].got) < 1300
    assert len(verdict.tests[0].expected) < 1300
    trace = "\n".join(f"line {number}" for number in range(1000)) + "\nValueError: end"
    deep = json.dumps({"exception": {"type": "ValueError", "message": "", "traceback": trace}})
    shown = judge(Suite("visible", (call(),)), Execution(None, (record(channel=deep),), 0.1)).tests[0].got
    assert shown.startswith("line 981\n")
    assert shown.endswith("ValueError: end")


def test_hostile_text_can_be_stored() -> None:
    channel = json.dumps({"exception": {"type": "E" * 5000, "message": "", "traceback": "\ud800"}})
    verdict = judge(Suite("visible", (call(),)), Execution(None, (record(channel=channel),), 0.1))
    json.dumps([verdict.detail, verdict.tests[0].got], ensure_ascii=False).encode()
    assert len(verdict.detail) < 150


@pytest.mark.parametrize(
    ("stderr", "name"),
    [
        (TRACE, "IndexError"),
        (SYNTAX, "SyntaxError"),
        (HEADER + "  x\njson.decoder.JSONDecodeError: bad", "JSONDecodeError"),
        (HEADER + "  x\nKeyError", "KeyError"),
        (HEADER + "  x\nKeyError: 1\n\nDuring handling ...\n\n" + TRACE, "IndexError"),
        ("", ""),
        ("Error handling", ""),
    ],
)
def test_name_of_the_exception_in_a_traceback(stderr: str, name: str) -> None:
    assert exception_name(stderr) == name


@pytest.mark.parametrize(
    ("checker", "got", "expected", "agrees"),
    [
        ("equal", 1, True, True),
        ("equal", 1.0, 1, True),
        ("equal", (1, 2), [1, 2], False),
        ("equal", {1: 2}, {1.0: 2}, True),
        ("equal", {1, 2}, frozenset({2, 1}), True),
        ("equal", float("nan"), float("nan"), False),
        ("equal", range(2), [0, 1], False),
        ("equal", "1", 1, False),
        ("equal:list", range(2), [0, 1], True),
        ("equal:tuple", [1], (1,), True),
        ("equal:tuple", None, (1,), False),
        ("equal:set", [1, 1], {1}, True),
        ("equal:set", [[1]], {1}, False),
        ("equal:set", [7] * 1000, {7}, True),
        ("equal:set", [number * (2**61 - 1) for number in range(600)], {0}, False),
        ("equal:sorted", "ba", ["a", "b"], True),
        ("equal:int", 5.7, 5, True),
        ("equal:int", "x", 5, False),
        ("equal:round:2", 0.499, 0.5, True),
        ("equal:round:2", "x", 0.5, False),
        ("is", True, True, True),
        ("is", 1, True, False),
        ("is", None, None, True),
        ("truthy", [0], None, True),
        ("truthy", 0, None, False),
        ("falsy", "", None, True),
        ("less:1e-6", 1.0000009, 1.0, True),
        ("less:0.5", 1.5, 1.0, False),
        ("less:0.5", None, 1.0, False),
        ("isclose:1e-3:0.0", 1000.9, 1000.0, True),
        ("isclose:1e-3:0.0", 1002.0, 1000.0, False),
        ("isclose:1e-3:0.0", "x", 1000.0, False),
        ("close:0.5", 1.5, 1.0, True),
        ("close:1e-6", [1.0, (2.0000001, "a")], [1.0, (2.0, "a")], True),
        ("close:1e-6", [1.0], (1.0,), False),
        ("close:1e-6", {"a": 1.1}, {"a": 1.0}, False),
        ("close:1e-6", {"a": 1.0, "b": 2}, {"a": 1.0}, False),
        ("close:1e-6", [float("nan")], [float("nan")], True),
        ("close:1e-6", float("inf"), float("inf"), True),
        ("close:1e-6", 1.0, float("inf"), False),
        ("close:1e-6", True, 1, False),
        ("close:1e-6", "a", "a", True),
    ],
)
def test_checkers_of_values(checker: str, got: Any, expected: Any, agrees: bool) -> None:
    assert value_agrees(checker, decode(encode(got)), decode(encode(expected))) is agrees


@pytest.mark.parametrize(
    ("checker", "got", "expected", "agrees"),
    [
        ("text", "1 2\n", "1 2", True),
        ("text", "1 2  \r\n\r\n", "1 2\n", True),
        ("text", "1  2", "1 2", False),
        ("text", "\n1", "1", False),
        ("text", " 1", "1", False),
        ("text", "", "", True),
        ("exact", "1\n", "1", False),
        ("exact", "1\r\n", "1\n", True),
        ("exact", "1 \n", "1\n", False),
        ("tokens", "1\n2", " 1   2 ", True),
        ("tokens", "1 2 3", "1 2", False),
        ("float:1e-6", "0.3333333 ok", "0.33333331 ok", True),
        ("float:1e-6", "1000000.5", "1000000", True),
        ("float:1e-6", "0.4", "0.3", False),
        ("float:1e-6", "1_0", "10", False),
        ("float:1e-6", "nan", "nan", True),
        ("float:1e-6", "nan", "1", False),
        ("float:1e-6", "1 2", "1", False),
        ("float:1e-6", "yes", "no", False),
    ],
)
def test_checkers_of_text(checker: str, got: str, expected: str, agrees: bool) -> None:
    assert text_agrees(checker, got, expected) is agrees


@pytest.mark.parametrize("checker", ["", "equals", "less", "close:", "isclose:1e-9", "equal:eval", "float"])
def test_unknown_checkers_are_refused(checker: str) -> None:
    with pytest.raises(ValueError, match=r"unknown|convert"):
        value_agrees(checker, 1, 1)
    with pytest.raises(ValueError, match=r"unknown|convert"):
        text_agrees(checker, "1", "1")
