"""Our own format: the documented example loads and means what it says, and every mistake is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UserError
from agentloop.types import Limits, Problem
from agentloop.workloads import load, problem_digest

DOC = Path(__file__).resolve().parents[2] / "docs" / "reference" / "jsonl.md"
GOOD = {"id": "a", "statement": "s", "entry_point": "f", "hidden": [{"args": [1], "value": 2}]}


def example() -> str:
    [block] = re.findall(r"```jsonl\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def problems(path: Path, *records: Any) -> list[Problem]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return load("jsonl", path)


def test_the_documented_example(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(example(), encoding="utf-8")
    clip, pair, total = load("jsonl", path)
    assert (clip.id, clip.workload, clip.interface, clip.entry_point) == ("clip", "jsonl:mine", "function", "clip")
    assert clip.limits == Limits(cpu=2.0)
    [visible] = clip.visible.tests
    assert (visible.kind, visible.checker, visible.expected) == ("call", "equal", {"value": 3})
    assert [(test.id, test.kind, test.checker) for test in clip.hidden.tests] == [
        ("h1", "call", "equal"), ("h2", "call", "equal"), ("h3", "call", "close:1e-9"), ("h4", "script", "script"),
    ]  # fmt: skip
    assert clip.hidden.tests[1].show == "assert clip(2, low=0, high=3) == 2"
    assert pair.prelude == "from typing import Tuple"
    assert pair.stub.startswith(pair.prelude)
    assert pair.hidden.tests[0].show == "assert pair(set()) == (set(), set())"
    assert (total.interface, total.entry_point) == ("stdio", None)
    assert total.hidden.tests[1].checker == "float:1e-9"
    assert total.visible.tests[0].show == "stdin:\n1 2\n\nstdout:\n3\n"


def test_an_assert_that_is_no_call_is_a_script(tmp_path: Path) -> None:
    [problem] = problems(tmp_path / "p.jsonl", GOOD | {"hidden": [{"assert": "f(1) < f(2)", "show": "it grows"}]})
    [test] = problem.hidden.tests
    assert (test.kind, test.input["code"], test.show) == ("script", "assert f(1) < f(2)", "it grows")


def test_a_script_may_ask_for_the_program_s_process(tmp_path: Path) -> None:
    [problem] = problems(tmp_path / "p.jsonl", GOOD | {"hidden": [{"script": "f(Node())", "in_process": True}]})
    assert problem.hidden.tests[0].checker == "in_process"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 3}, "field 'id': Input should be a valid string"),
        ({"id": ""}, "field 'id'"),
        ({"statement": None}, "field 'statement'"),
        ({"hidden": []}, "field 'hidden': List should have at least 1 item"),
        ({"hidden": [{}]}, r"field 'hidden\[0\]': a test has exactly one of"),
        ({"hidden": [{"args": [], "stdout": ""}]}, r"field 'hidden\[0\]': a test has exactly one of"),
        ({"hidden": [{"args": [], "value": 1, "stdin": "x"}]}, r"stdin does not go with args; what does: checker, id,"),
        ({"hidden": [{"args": [1]}]}, r"field 'hidden\[0\]': checker 'equal' needs a value"),
        ({"hidden": [{"args": [1], "value": 1, "checker": "truthy"}]}, "'truthy' takes no value"),
        ({"hidden": [{"args": [1], "value": 1, "checker": "equl"}]}, "unknown checker 'equl': did you mean 'equal'"),
        (
            {"hidden": [{"args": [1], "value": 1, "checker": "close"}]},
            "checker 'close': it lacks its number: write close:TOL",
        ),
        ({"hidden": [{"args": [1], "value": 1, "checker": "close:-1"}]}, "a tolerance is not below 0"),
        (
            {"hidden": [{"args": [1], "value": 1, "checker": "tokens"}]},
            "'tokens' is for stdio tests; for call",
        ),
        (
            {"entry_point": None, "hidden": [{"stdout": "1", "checker": "close:1"}]},
            "'close:1' is for call tests",
        ),
        ({"hidden": [{"args": [1], "value": 1, "checker": "is"}]}, "'is' has null, true or false as its value"),
        (
            {"hidden": [{"args": [1], "value": 1, "checker": "json:3"}]},
            "'json:3': write json alone, it takes no number",
        ),
        ({"hidden": [{"args": [[float("nan")]], "value": 1}]}, 'NaN and infinity are no JSON: write {"float": "nan"}'),
        ({"hidden": [{"args": [], "kwargs": {"x": {"complex": [0, float("inf")]}}, "value": 1}]}, "are no JSON"),
        ({"hidden": [{"args": [], "value": float("-inf")}]}, "are no JSON"),
        ({"hidden": [{"args": [{"set": [[1]]}], "value": 1}]}, "no such set"),
        ({"hidden": [{"args": [{"a": 1}], "value": 1}]}, "not plain data: .*; a dict is written {"),
        ({"hidden": [{"args": [], "value": {"a": 1, "b": 2}}]}, "not plain data: .*; a dict is written {"),
        ({"hidden": [{"stdout": "x"}]}, "needs a problem without entry_point"),
        ({"hidden": [{"assert": "f("}]}, r"field 'hidden\[0\]': assert is no Python expression"),
        ({"hidden": [{"assert": "assert f(1) == 2"}]}, "no Python expression: leave out the word assert: .*line 1"),
        ({"hidden": [{"assert": "1 == 1"}]}, r"field 'hidden\[0\]': assert does not call f"),
        ({"visible": [{"script": "x = 1\nassert f(x) = 2"}]}, r"'visible\[0\]': the script does not parse: .*line 2\)"),
        (
            {"hidden": [{"assert": "f(1) == 1", "id": "x"}, {"assert": "f(2) == 1", "id": "x"}]},
            "have one id, 'x'",
        ),
        ({"entry_point": None}, "needs the problem's entry_point"),
        ({"entry_point": "f()"}, "field 'entry_point': 'f\\(\\)' is not the name of a function: write 'f'"),
        ({"entry_point": "class"}, "field 'entry_point': 'class' is not the name of a function"),
        ({"statment": "s"}, r"field 'statment': is no field of this format: did you mean 'statement'\?"),
        ({"hidden": [{"arg": [1], "value": 2}]}, r"field 'hidden\[0\].arg': .*: did you mean 'args'\?"),
        ({"prelude": "import ("}, "field 'prelude' is no Python"),
        ({"stub": "def f(x:\n"}, "field 'stub' is no Python"),
        ({"zzzz": 1}, "field 'zzzz': is no field of this format: known: id, statement"),
        ({"language": "Python"}, r"field 'language': unknown language 'Python': did you mean 'python'\?"),
        ({"language": "C++"}, "unknown language 'C\\+\\+': did you mean 'cpp'"),
        ({"language": "cpp"}, "field 'entry_point': a program in cpp reads stdin"),
        ({"language": "c", "entry_point": None}, r"field 'hidden\[0\]': a program in c has stdio tests only"),
        ({"limits": {"cpu": 0}}, r"field 'limits.cpu'"),
        ({"limits": {"cpu": "2"}}, r"field 'limits.cpu'"),
        ({"limits": {"wall": float("inf")}}, r"field 'limits.wall'"),
        ({"limits": {"seconds": 1}}, r"field 'limits.seconds'"),
        ({"limits": {"memory": 512}}, r"'limits.memory': 512 bytes .* least is 16777216; 512 MiB are 536870912$"),
        ({"limits": {"memory": 16777215}}, r"'limits.memory': 16777215 bytes .* least is 16777216$"),
    ],
)
def test_every_mistake_names_line_and_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"p.jsonl line 2: .*{message}"):
        problems(tmp_path / "p.jsonl", GOOD | {"id": "first"}, GOOD | change)


@pytest.mark.parametrize(
    "stub",
    [
        "",
        "import os\n\n\ndef f(x):\n",
        'def f(x):\n    """Doc."""\n',
        "class A:\n    def f(self, x) -> int:\n        ",
        "if x:\n    pass\nelse:",
        "def f(x):\n    try:",
        "def f(x):\n    match x:",
        "import functools\n\n\n@functools.cache",
    ],
)
def test_a_stub_ends_where_a_body_begins(tmp_path: Path, stub: str) -> None:
    (problem,) = problems(tmp_path / "p.jsonl", GOOD | {"stub": stub})
    assert problem.stub == stub


def test_a_misspelt_field_is_told_before_the_one_that_it_stands_for(tmp_path: Path) -> None:
    record = {("statment" if key == "statement" else key): value for key, value in GOOD.items()}
    with pytest.raises(UserError, match="line 1: field 'statment'"):
        problems(tmp_path / "p.jsonl", record)


def test_whole_numbers_are_seconds_and_the_least_memory_is_enough(tmp_path: Path) -> None:
    [problem] = problems(tmp_path / "p.jsonl", GOOD | {"limits": {"cpu": 2, "memory": 16 * 2**20}})
    assert problem.limits == Limits(cpu=2.0, memory=16 * 2**20)


@pytest.mark.parametrize(
    ("given", "wall"), [({"cpu": 20}, 75.0), ({"cpu": 2}, 15.0), ({"cpu": 20, "wall": 30}, 30.0), ({"wall": 9}, 9.0)]
)
def test_more_cpu_time_is_not_cut_short_by_the_wall_time(tmp_path: Path, given: dict[str, float], wall: float) -> None:
    [problem] = problems(tmp_path / "p.jsonl", GOOD | {"limits": given})
    assert problem.limits.wall == wall


@pytest.mark.parametrize("source", ["import sys\nsys.exit(0)\n", "raise SystemExit", "import nothing_of_this_name"])
def test_a_checker_that_ends_or_fails_when_it_is_read_is_refused(tmp_path: Path, source: str) -> None:
    (tmp_path / "c.py").write_text(source)
    record = {"id": "a", "statement": "s", "hidden": [{"stdout": "1", "checker": "c.py"}]}
    with pytest.raises(UserError, match=r"p.jsonl line 1: field 'hidden\[0\]': checker .*c.py: \w+"):
        problems(tmp_path / "p.jsonl", record)


def test_a_checker_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    record = {"id": "a", "statement": "s", "hidden": [{"stdout": "1", "checker": "c.py"}]}
    with pytest.raises(UserError, match=r"field 'hidden\[0\]': checker [^:]*c.py: No such file or directory$"):
        problems(tmp_path / "p.jsonl", record)


def test_two_problems_of_one_id_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 2: field 'id': 'a' is the id of .*line 1 too"):
        problems(tmp_path / "p.jsonl", GOOD, GOOD)


@pytest.mark.parametrize("text", ["", "\n\n", "[]"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"empty.jsonl holds no record"):
        load("jsonl", path)


def test_the_digest_is_of_everything(tmp_path: Path) -> None:
    [first] = problems(tmp_path / "p.jsonl", GOOD)
    [again] = problems(tmp_path / "p.jsonl", GOOD)
    [other] = problems(tmp_path / "p.jsonl", GOOD | {"hidden": [{"args": [1], "value": 3}]})
    assert problem_digest(first) == problem_digest(again)
    assert problem_digest(first) != problem_digest(other)
    assert len(problem_digest(first)) == 64
