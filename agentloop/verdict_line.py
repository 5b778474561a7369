"""One line of stored verdicts: the program that a line in holds, and what the line out says of it."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from agentloop.extract import bound_names, extract, with_prelude
from agentloop.program import parse
from agentloop.types import Extraction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentloop.types import Execution, Json, Problem, SuiteVerdict


def program_of(record: Mapping[str, Any], problem: Problem) -> Extraction:
    """The program of a stored line: its `code` as it stands, or what is found in its `response`.

    A `code` that is the body of the function alone goes behind the problem's stub (rule `body`). To another one what it
    names and lacks of the problem's prelude is added, and listed. White space alone is no program.
    """
    code = record.get("code")
    if code is None:
        return extract(record["response"], problem, str(record.get("finish_reason") or "stop"))
    if not code.strip():
        return Extraction(None, "code", "empty")
    tree = parse(code) if problem.language == "python" else None
    if problem.stub and (tree is None or problem.entry_point not in bound_names(tree)):
        body = extract(f"```\n{code}\n```", problem)
        if body.rule == "body":
            return body
    if tree is None or not problem.prelude:
        return Extraction(code, "code")
    whole, added = with_prelude(code, tree, problem.prelude)
    return Extraction(whole, "code", "", added)


def verdict_keys(
    problem: Problem,
    total: int,
    found: Extraction,
    result: tuple[SuiteVerdict, Execution] | None,
    environment: Mapping[str, Json],
) -> dict[str, Any]:
    """A verdict on `total` tests and all that it rests on, as keys of a line. `result` None: there was no program."""
    verdict, execution = result or (None, None)
    none: dict[str, Json] = {}  # tests of a program that did not compile have no record
    records = chain(execution.tests if execution else (), repeat(none))
    tests = []
    for test, record in zip(verdict.tests if verdict else (), records, strict=False):
        one = {"id": test.test, "outcome": test.outcome, "detail": test.detail}
        if test.outcome != "passed":  # of a passed test they say what was expected: of thousands of tests, too much
            one |= {"got": test.got, "expected": test.expected}
        used = {key: record.get(key) for key in ("wall", "cpu", "memory")}
        tests.append(one | used | {"trust": test.trust})
    return {
        "outcome": verdict.outcome if verdict else "no_code",
        "detail": verdict.detail if verdict else found.detail,
        "passed": verdict.passed if verdict else 0,
        "total": total,
        "tests": tests,
        "extraction": {"rule": found.rule, "detail": found.detail, "added": list(found.added)},
        "limits": {**asdict(problem.limits), **environment.get("limits", {})},
        "isolation": environment["isolation"],
        "trust": "in_process" if any(test["trust"] == "in_process" for test in tests) else "separate",
    }
