"""The conformance cases on every level of the local sandbox, as root and as an ordinary user."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agentloop.testing import sandbox_cases
from tests.sandbox.conftest import Run

LEVELS = [("namespaces", True), ("namespaces", False), ("reduced", True), ("reduced", False)]
CASES = [
    pytest.param(level, root, case[0], id=f"{level}-{'root' if root else 'user'}-{case[0].replace(' ', '_')}")
    for level, root in LEVELS
    for case in sandbox_cases(reduced=level == "reduced")
]


@pytest.fixture(scope="session")
def results(run_as: Run) -> Callable[[str, bool], dict[str, str]]:
    """All cases of a level, run once."""
    done: dict[tuple[str, bool], dict[str, str] | str] = {}

    def get(level: str, root: bool) -> dict[str, str]:
        if (level, root) not in done:
            # Without a uid for each lane the kernel counts the processes of all lanes together: a fork bomb in one
            # takes from the others, so they run one after the other there.
            lanes = 1 if level == "reduced" and not root else 2
            process = run_as(root, "run_cases.py", level, str(lanes))
            if process.returncode == 0:
                done[level, root] = json.loads(process.stdout)
            else:
                done[level, root] = process.stderr.strip().splitlines()[-1]
        found = done[level, root]
        if isinstance(found, str):
            if "does not work here" in found:
                pytest.skip(found)
            pytest.fail(found)
        return found

    return get


@pytest.mark.parametrize(("level", "root", "case"), CASES)
def test_case(level: str, root: bool, case: str, results: Callable[[str, bool], dict[str, str]]) -> None:
    assert results(level, root)[case] == ""


def test_memory_is_bounded_where_root_may_not_look_at_others(run_as: Run) -> None:
    """As in a container that may make namespaces."""
    process = run_as(True, "run_cases.py", "namespaces", "2", "memory")
    if "does not work here" in process.stderr:
        pytest.skip(process.stderr.strip().splitlines()[-1])
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert "hides its memory" in found


def test_names_of_cases_are_unique() -> None:
    names = [case[0] for case in sandbox_cases()]
    assert len(set(names)) == len(names)
