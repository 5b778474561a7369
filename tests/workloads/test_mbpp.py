"""MBPP as loaded: the split of its asserts, both files, bad data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UserError
from agentloop.program import parse
from agentloop.types import Problem
from agentloop.workloads import load

RECORD = {
    "text": "Write a function to double.\r\n",
    "code": "def double(x):\r\n\treturn 2 * x\r\n",
    "task_id": 9000,
    "test_setup_code": "",
    "test_list": ["assert double(1) == 2", "assert double(2)==4", "assert set(double([1])) == {1}"],
    "challenge_test_list": ["assert double(5) == 11"],
}


def problems(path: Path, *records: dict[str, Any]) -> list[Problem]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return load("mbpp", path)


def test_the_first_assert_is_visible_and_the_others_are_hidden(tmp_path: Path) -> None:
    [problem] = problems(tmp_path / "one.jsonl", RECORD)
    assert (problem.id, problem.entry_point, problem.stub) == ("Mbpp/9000", "double", "")
    assert problem.statement == (
        "Write a function to double.\nYour code should pass this test:\nassert double(1) == 2\n"
    )
    assert [test.show for test in problem.visible.tests] == ["assert double(1) == 2"]
    assert [test.show for test in problem.hidden.tests] == ["assert double(2)==4", "assert set(double([1])) == {1}"]
    assert [test.id for test in (*problem.visible.tests, *problem.hidden.tests)] == ["v1", "h1", "h2"]
    assert problem.references == ("def double(x):\n\treturn 2 * x\n",)


def test_the_sanitized_file_is_an_array_of_prompts(tmp_path: Path) -> None:
    record = {
        "source_file": "x", "task_id": 1, "prompt": "Area.", "code": "c", "test_imports": ["import math"],
        "test_list": ["assert math.isclose(area(1), 3.14, rel_tol=0.01)", "assert area(2) == math.pi * 4"],
    }  # fmt: skip
    path = tmp_path / "s.json"
    path.write_text(json.dumps([record]), encoding="utf-8")
    [problem] = load("mbpp", path)
    assert problem.entry_point == "area"
    assert problem.visible.tests[0].checker == "isclose:0.01:0.0"
    [script] = problem.hidden.tests
    assert (script.kind, script.checker) == ("script", "script")
    assert script.input["code"] == "import math\nimport math\nassert area(2) == math.pi * 4"


def test_objects_of_the_program_need_its_process(tmp_path: Path) -> None:
    tests = ["assert height(root) == 1", "assert height(root) == 2"]
    [problem] = problems(tmp_path / "one.jsonl", RECORD | {"test_setup_code": "root = Node(1)\r\n", "test_list": tests})
    assert {test.checker for test in (*problem.visible.tests, *problem.hidden.tests)} == {"in_process"}
    assert problem.visible.tests[0].input["code"] == "root = Node(1)\n\nassert height(root) == 1"
    assert problem.notes == ("tests that share the program's process: v1, h1",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_id": "1"}, "field 'task_id' must be int"),
        ({"test_list": ["assert f(1) == 1"]}, "field 'test_list' needs two asserts"),
        ({"test_list": ["assert f(1) == 1", "assert ("]}, "field 'test_list' holds 'assert \\('"),
        ({"test_list": ["assert f(1) == 1", "f(1)"]}, "which is not one assert"),
        ({"test_list": ["assert f(1) == 1", "assert g(1) == 1"]}, "the asserts call no function in common"),
    ],
)
def test_a_bad_record_names_line_and_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"line 2: .*{message}"):
        problems(tmp_path / "bad.jsonl", RECORD, RECORD | change)


def test_the_data_file_must_be_given() -> None:
    with pytest.raises(UserError, match="--data"):
        load("mbpp", None)


def test_the_full_file(data_dir: Path) -> None:
    found = load("mbpp", data_dir / "mbpp" / "mbpp.jsonl.gz")
    assert len(found) == 974
    assert sum(len(problem.visible.tests) for problem in found) == 974
    kinds = Counter(test.checker for problem in found for test in (*problem.visible.tests, *problem.hidden.tests))
    assert kinds == {"equal": 2904, "equal:int": 3, "script": 3, "in_process": 12}
    shared = [problem.id for problem in found if problem.visible.tests[0].checker == "in_process"]
    assert shared == ["Mbpp/367", "Mbpp/533", "Mbpp/601", "Mbpp/927"]
    assert not any("\r" in problem.references[0] + problem.statement for problem in found)
    for problem in found:
        assert parse(problem.references[0]) is not None
        assert str(problem.entry_point) in problem.statement


def test_the_sanitized_file(data_dir: Path) -> None:
    found = load("mbpp", data_dir / "mbpp" / "sanitized-mbpp.json.gz")
    assert len(found) == 427
    assert sum(len(problem.visible.tests) for problem in found) == 427
    scripts = {problem.id for problem in found for test in problem.hidden.tests if test.kind == "script"}
    assert scripts == {"Mbpp/596"}
