"""HumanEval+, MBPP+, QuixBugs and CodeNet on the real data, in small samples: right programs pass, wrong ones fail."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import pytest

from agentloop.compare import value_agrees
from agentloop.errors import UserError
from agentloop.plain import Iterated, decode, encode
from agentloop.types import Problem
from agentloop.workloads import load
from agentloop.workloads.plus import literal
from tests.workloads.test_references import all_tests, verdicts, wrong


def humaneval(data_dir: Path) -> list[Problem]:
    return load("humanevalplus", data_dir / "humanevalplus" / "HumanEvalPlus-OriginFmt.jsonl.gz")


def test_humanevalplus(data_dir: Path) -> None:
    problems = humaneval(data_dir)
    assert len(problems) == 164
    calls = [test for problem in problems for test in problem.hidden.tests if test.kind == "calls"]
    # All inputs of the file but those of the seven problems whose results are computed.
    assert sum(len(json.loads(test.input["calls"])) for test in calls) == 121_592
    computed = [problem.id for problem in problems if problem.hidden.tests[0].kind == "script"]
    assert computed == [f"HumanEval/{number}" for number in (14, 15, 32, 83, 100, 130, 139)]
    assert wrong([each for each in problems if each.id in ("HumanEval/2", "HumanEval/32", "HumanEval/83")]) == []


def test_mbppplus(data_dir: Path) -> None:
    problems = load("mbppplus", data_dir / "mbppplus" / "MbppPlus-OriginFmt.jsonl.gz")
    assert len(problems) == 378
    by_id = {problem.id: problem for problem in problems}
    # One of each way to compare: sets, NaN among the inputs, a tolerance, match objects.
    assert wrong([by_id[f"Mbpp/{number}"] for number in (2, 404, 82, 737)]) == []
    usual = by_id["Mbpp/2"].limits.cpu
    slow = {problem.id: problem.limits.cpu for problem in problems if problem.limits.cpu > usual}
    assert set(slow) == {"Mbpp/239", "Mbpp/599", "Mbpp/781"}
    # Three times the CPU seconds that right programs were measured to take for one test.
    assert slow["Mbpp/239"] >= 3 * 50
    assert slow["Mbpp/599"] >= 3 * 25
    assert slow["Mbpp/781"] >= 3 * 45
    divisors = [json.loads(test.input["calls"]) for test in by_id["Mbpp/781"].hidden.tests]
    assert sum(map(len, divisors)) == 115  # the inputs that the file holds
    assert [[n > 900_000_000 for [n] in calls] for calls in divisors[-9:]] == [[True]] * 9  # each takes those seconds
    assert max(n for calls in divisors[:-9] for [n] in calls) < 2_000_000
    # A program that only waits holds up a lane for each problem's tests less than two hours, whatever it waits for.
    assert max(len(problem.hidden.tests) * problem.limits.wall for problem in problems) < 2 * 3600
    always = "import re\ndef text_match_three(text):\n    return 'Found'\n"
    [verdict] = verdicts([(by_id["Mbpp/787"], always, by_id["Mbpp/787"].hidden.tests)])
    assert verdict.outcome == "failed"  # its published assertion lets every program pass


def test_a_wrong_call_among_a_hundred_is_told(data_dir: Path) -> None:
    [problem] = [each for each in humaneval(data_dir) if each.id == "HumanEval/53"]  # add(x, y)
    programs = ["def add(x, y):\n    return x + y if x < 9 else x - y", "def add(x, y):\n    return 1 / 0", "exit(0)",
                "import os\ndef add(x, y):\n    if x > 5:\n        os._exit(0)\n    return x + y"]  # fmt: skip
    found = verdicts([(problem, program, problem.hidden.tests[:1]) for program in programs])
    assert [(each.outcome, each.detail) for each in found] == [
        ("failed", ""), ("runtime_error", "ZeroDivisionError"), ("runtime_error", "early_exit"),
        ("runtime_error", "early_exit"),
    ]  # fmt: skip
    call, _, got = found[0].tests[0].got.partition(": ")
    x, y = ast.literal_eval(call.removeprefix("add"))
    assert (int(got), int(found[0].tests[0].expected)) == (x - y, x + y)


def test_literals_are_read_as_python_reads_them() -> None:
    text = r"""[[1, -2.5, 1e-07, 12345678901234567890, -9007199254740993], ('a', "it's", 'q"q', '\n\x00\\'), (), (1,),
        [True, False, None, 'True'], ['(', ',)', '{'], inf, -inf, 0.12345678901234567]"""
    value = ast.literal_eval(text.replace("-inf", "-1e999").replace("inf", "1e999"))
    assert decode(literal("", text)) == value
    assert math.isnan(decode(literal("", "[nan]"))[0])
    for other in ("[{1: (2, 3)}, {4, 5}]", "[b'x', 2j]"):
        assert decode(literal("", other)) == ast.literal_eval(other)
    for bad in ("[f(1)]", "[x]", "["):
        with pytest.raises(UserError, match="must be literals"):
            literal("here", bad)


def test_literals_of_the_real_file(data_dir: Path) -> None:
    import gzip

    with gzip.open(data_dir / "humanevalplus" / "HumanEvalPlus-OriginFmt.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in list(file)[:40:5]:
            for text in json.loads(line)["test"].splitlines():
                name, _, source = text.strip().partition(" = ")
                if name in ("inputs", "results"):
                    assert literal("", source) == encode(ast.literal_eval(source))


def test_the_main_file_is_refused(data_dir: Path) -> None:
    with pytest.raises(UserError, match="holds no expected results: give HumanEvalPlus-OriginFmt"):
        load("humanevalplus", data_dir / "humanevalplus" / "HumanEvalPlus.jsonl.gz")


@pytest.mark.parametrize(
    ("checker", "got", "expected", "agrees"),
    [
        ("evalplus:0", 1, 1.0, True),
        ("evalplus:0", 1.0000005, 1.0, True),
        ("evalplus:0", 1.00001, 1.0, False),
        ("evalplus:0", 3, 4, False),
        ("evalplus:0", [1.0], [], False),  # numpy's broadcasting says True
        ("evalplus:0", [0.1 + 0.2, 1.0], [0.3, 1.0], True),
        ("evalplus:0", (0.3,), [0.1 + 0.2], True),
        ("evalplus:0", [0.3, "a"], [0.1 + 0.2, "a"], False),
        ("evalplus:0", None, 1.0, False),
        ("evalplus:0", float("nan"), 1.0, False),
        ("evalplus:0.0001", 10.00005, 10.0, True),
        ("evalplus:0.0001", [[1.00005]], [[1.0]], True),
        ("evalplus:0.0001", "a", "b", False),
        ("match", True, True, True), ("match", False, True, False), ("match", None, False, True),
        ("match", "x", False, False), ("match", "x", True, True),
        ("json", ([1], (2,)), [[1], [2]], True), ("json", Iterated((1, 2)), [1, 2], True), ("json", (1,), [2], False),
    ],
)  # fmt: skip
def test_checkers(checker: str, got: object, expected: object, agrees: bool) -> None:
    assert value_agrees(checker, got, expected) is agrees


def test_quixbugs(data_dir: Path) -> None:
    problems = load("quixbugs", data_dir / "quixbugs" / "quixbugs.jsonl")
    assert len(problems) == 30
    assert sum(len(all_tests(problem)) for problem in problems) == 180 + 26  # one slow case is left out
    names = ("flatten", "hanoi", "sqrt", "shortest_paths", "shortest_path_length", "reverse_linked_list")
    assert wrong([problem for problem in problems if problem.id in names]) == []
    buggy = [(each, each.statement.split("```python\n")[1].rpartition("```")[0], all_tests(each)) for each in problems
             if each.id in ("gcd", "hanoi", "reverse_linked_list", "shortest_paths")]  # fmt: skip
    assert "passed" not in [verdict.outcome for verdict in verdicts(buggy)]


def test_codenet(data_dir: Path) -> None:
    problems = load("codenet", data_dir / "codenet" / "codenet_with_references.jsonl.gz")
    assert (len(problems), sum(len(problem.references) for problem in problems)) == (124, 353)
    assert all(problem.hidden.tests and len(problem.visible.tests) <= 1 for problem in problems)
    assert wrong(problems[::40]) == []
