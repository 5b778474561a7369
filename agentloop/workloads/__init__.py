"""Workloads: where problems come from. A name (see `names`), an entry point, or a Python file."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path

from agentloop.errors import AgentloopError, UserError, unknown_name, unmatched
from agentloop.fetch import Progress, silent
from agentloop.hashing import digest
from agentloop.types import LANGUAGES, Problem, memory_fault
from agentloop.workloads.checked import problem_fault

BUILT_IN = ("codenet", "humaneval", "humanevalplus", "jsonl", "mbpp", "mbppplus", "quixbugs")
GROUP = "agentloop.workloads"
"""Entry points of other packages: a function `load(data: Path | None) -> Iterable[Problem]`."""


def load(name: str, data: Path | None, progress: Progress = silent) -> list[Problem]:
    """All problems of a workload, in its own order.

    `name` is a built-in name, the name of an entry point, or the path of a Python file with a function
    `load(data: Path | None) -> Iterable[Problem]`. Raises `UserError` for an unknown name, data that cannot be read
    (with line and field), a workload without problems, and two problems of one id.
    """
    problems = list(_source(name, data, progress))
    if not problems:
        raise UserError(f"workload {name!r} holds no problem")
    seen: set[str] = set()
    for problem in problems:
        if not problem.id.isprintable():  # ids stand in tables and file names
            raise UserError(f"workload {name!r}: the id {problem.id!r} has characters that cannot be printed")
        if problem.id in seen:
            raise UserError(f"workload {name!r}: two problems have the id {problem.id!r}")
        seen.add(problem.id)
        if fault := _unfit(problem):
            raise UserError(f"workload {name!r}: problem {problem.id!r}: {fault}")
    return problems


def _unfit(problem: Problem) -> str:
    """Why no sandbox can judge programs for a problem, or ''."""
    if problem.language not in LANGUAGES:
        return str(unknown_name("language", problem.language, LANGUAGES))
    if problem.language != "python":
        if problem.interface != "stdio":
            return f"a program in {problem.language} reads stdin and writes stdout: it has no entry_point"
        for test in problem.visible.tests + problem.hidden.tests:
            if test.kind != "stdio":
                return f"test {test.id!r} is a {test.kind} test: a program in {problem.language} has stdio tests only"
    return (fault := memory_fault(problem.limits.memory)) and f"limits.memory: {fault}"


def names() -> list[str]:
    """The known names of workloads, built in or of installed packages."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def _source(name: str, data: Path | None, progress: Progress) -> Iterable[Problem]:
    if name == "humaneval":
        from agentloop.workloads import humaneval

        return humaneval.load(data, progress)
    if name == "mbpp":
        from agentloop.workloads import mbpp

        return mbpp.load(data)
    if name in ("humanevalplus", "mbppplus"):
        from agentloop.workloads import plus

        return plus.load_humaneval(data) if name == "humanevalplus" else plus.load_mbpp(data)
    if name == "quixbugs":
        from agentloop.workloads import quixbugs

        return quixbugs.load(data)
    if name == "codenet":
        from agentloop.workloads import codenet

        return codenet.load(data)
    if name == "jsonl":
        from agentloop.workloads import jsonl

        return jsonl.load(data)
    if name.endswith(".py"):
        return _others(name, _function(Path(name)), data)
    entry = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry is None:
        raise unknown_name("workload", name, names())
    try:
        function = entry.load()
    except ImportError as error:
        raise UserError(f"workload {name!r}: entry point {entry.value} cannot be imported: {error}") from error
    return _others(name, function, data)


def _others(name: str, function: Callable[[Path | None], Iterable[Problem]], data: Path | None) -> list[Problem]:
    """The problems of somebody else's function, looked at as those of our own formats are when they are read."""
    try:
        problems = list(function(data))
    except AgentloopError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}, line {frame.lineno}"
        raise UserError(f"workload {name!r}: load failed: {type(error).__name__}: {error} ({place})") from error
    for problem in problems:
        if fault := problem_fault(problem):
            raise UserError(f"workload {name!r}: {fault}")
    return problems


def _function(path: Path) -> Callable[[Path | None], Iterable[Problem]]:
    if not path.is_file():
        raise UserError(f"workload {str(path)!r}: no such file")
    try:
        function = runpy.run_path(str(path), run_name=f"agentloop_workload_{path.stem}").get("load")
    except Exception as error:
        raise UserError(f"workload {path} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UserError(f"workload {path} has no function load(data)")
    loader: Callable[[Path | None], Iterable[Problem]] = function
    return loader


def matches(id: str, pattern: str) -> bool:
    """Whether a pattern is this id (which may have brackets) or a glob over it."""
    return pattern == id or fnmatchcase(id, pattern)


def select(
    problems: Sequence[Problem],
    patterns: Sequence[str] = (),
    every: int | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> list[Problem]:
    """Some problems, in their order: those that match a pattern, of these each `every`-th from `offset`, up to `limit`.

    A pattern is an id or a glob over ids (`HumanEval/1*`). Raises `UserError` for a pattern that matches nothing, with
    the nearest ids, and when nothing is left.
    """
    if (every is not None and every < 1) or offset < 0 or (limit is not None and limit < 0):
        raise UserError(
            f"problems: every={every}, offset={offset}, limit={limit}: every is 1 or more, none is negative"
        )
    ids = [problem.id for problem in problems]
    for pattern in patterns:
        if not any(matches(id, pattern) for id in ids):
            raise unmatched(pattern, ids)
    chosen = [each for each in problems if not patterns or any(matches(each.id, pattern) for pattern in patterns)]
    chosen = chosen[offset :: every or 1][:limit]
    if not chosen:
        raise UserError(f"problems: nothing is left of {len(ids)} (every={every}, offset={offset}, limit={limit})")
    return chosen


def problem_digest(problem: Problem) -> str:
    """SHA-256 (hex) of everything in a problem: two problems with one digest ask and test the same."""
    return digest(asdict(problem))
