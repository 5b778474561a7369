"""Every reference passes every suite of its problem, in the local sandbox: loaders, drivers and verdicts together.

This is the test that a rewriting of asserts into calls turned no right program into a wrong one.
"""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.sandbox import open_sandbox
from agentloop.types import Job, Problem, Suite, SuiteVerdict, Test
from agentloop.verdict import judge
from agentloop.workloads import load
from agentloop.workloads.asserts import call_test
from agentloop.workloads.humaneval import WRONG_EXAMPLES

DOC = Path(__file__).resolve().parents[2] / "docs" / "reference" / "jsonl.md"
Run = tuple[Problem, str, tuple[Test, ...]]
"""problem, program, tests"""


def verdicts(runs: Sequence[Run]) -> list[SuiteVerdict]:
    """Run programs in the local sandbox, as many at a time as there are cores; else a skip with the reason."""

    async def work() -> list[SuiteVerdict]:
        lanes = os.cpu_count() or 1
        sandbox = open_sandbox("local", lanes=lanes)
        free = asyncio.Semaphore(lanes)

        async def one(problem: Problem, program: str, tests: tuple[Test, ...]) -> SuiteVerdict:
            async with free:
                execution = await sandbox.execute(Job(problem.language, program, tests, problem.limits))
            return judge(Suite("hidden", tests), execution)

        try:
            await sandbox.start()
        except UserError as error:
            await sandbox.close()
            pytest.skip(f"local sandbox: {error}")
        try:
            return await asyncio.gather(*(one(*run) for run in runs))
        finally:
            await sandbox.close()

    return asyncio.run(work())


def all_tests(problem: Problem) -> tuple[Test, ...]:
    return problem.visible.tests + problem.hidden.tests


def wrong(problems: list[Problem]) -> list[str]:
    """What the references do not pass, as lines to read."""
    runs = [(problem, program, all_tests(problem)) for problem in problems for program in problem.references]
    found = []
    for (problem, _, _), verdict in zip(runs, verdicts(runs), strict=True):
        bad = [test for test in verdict.tests if test.outcome != "passed"]
        found += [f"{problem.id} {test.test}: {test.outcome} {test.detail} {test.got}" for test in bad]
    return found


def test_humaneval(data_dir: Path) -> None:
    assert wrong(load("humaneval", data_dir / "humaneval" / "HumanEval.jsonl.gz")) == []


def test_the_examples_that_were_dropped_fail_on_the_references(data_dir: Path) -> None:
    problems = {problem.id: problem for problem in load("humaneval", data_dir / "humaneval" / "HumanEval.jsonl.gz")}
    runs = []
    for id, examples in WRONG_EXAMPLES.items():
        problem = problems[id]
        for source in examples:
            condition = ast.parse(source, mode="eval").body
            test = call_test("v1", condition, problem.entry_point or "", show=source)
            assert test is not None
            runs.append((problem, problem.references[0], (test,)))
    assert [verdict.outcome for verdict in verdicts(runs)] == ["failed"] * len(runs)


def test_mbpp(data_dir: Path) -> None:
    full = load("mbpp", data_dir / "mbpp" / "mbpp.jsonl.gz")
    known = {(problem.references[0], test.show) for problem in full for test in all_tests(problem)}
    # The sanitized file repeats most programs and asserts of the full one: only what is new there is run.
    changed = [
        problem
        for problem in load("mbpp", data_dir / "mbpp" / "sanitized-mbpp.json.gz")
        if not all((problem.references[0], test.show) in known for test in all_tests(problem))
    ]
    assert len(changed) < 427
    assert wrong([*full, *changed]) == []


def test_the_documented_jsonl_example(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(DOC.read_text(encoding="utf-8").partition("```jsonl\n")[2].partition("```")[0], encoding="utf-8")
    problems = load("jsonl", path)
    assert wrong(problems) == []
    lazy = [(problem, "def clip(x, low, high):\n    return x\n", all_tests(problem)) for problem in problems[:1]]
    [verdict] = verdicts(lazy)
    assert [test.outcome for test in verdict.tests] == ["failed", "failed", "passed", "passed", "failed"]
    assert (verdict.tests[0].got, verdict.tests[0].expected) == ("5", "3")
    assert verdict.tests[4].got == "assert 0 <= clip(x, 0, 3) <= 3"


def test_constants_do_not_pass(data_dir: Path) -> None:
    """A program that answers the same to everything passes next to nothing: the suites do test."""
    problems = load("humaneval", data_dir / "humaneval" / "HumanEval.jsonl.gz")[::4]
    runs = [(each, f"def {each.entry_point}(*args):\n    return None\n", each.hidden.tests) for each in problems]
    assert [verdict.outcome for verdict in verdicts(runs)].count("passed") == 0
