"""Finding workloads by name and by path, data files of any make, and picking problems."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.types import Problem, Suite
from agentloop.workloads import load, names, select
from agentloop.workloads.records import read_records

WORKLOAD = """
from agentloop.types import Problem, Suite

def load(data):
    for name in ("a", "b"):
        yield Problem(name, "mine", str(data), "stdio", Suite("visible", ()), Suite("hidden", ()))
"""

LIMITED = """
from agentloop.types import Limits, Problem, Suite

def load(data):
    yield Problem("a", "mine", "s", "stdio", Suite("visible", ()), Suite("hidden", ()), {})
"""


def mine(folder: Path, source: str) -> str:
    """The path of a workload file with this source."""
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    return str(path)


def test_names() -> None:
    assert {"humaneval", "jsonl", "mbpp"} <= set(names())


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown workload 'human': did you mean 'humaneval'\?"):
        load("human", None)


def test_a_python_file_is_a_workload(tmp_path: Path) -> None:
    problems = load(mine(tmp_path, WORKLOAD), Path("x"))
    assert [(problem.id, problem.statement) for problem in problems] == [("a", "x"), ("b", "x")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", r"has no function load\(data\)"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("def load(data):\n    return []", "holds no problem"),
        (WORKLOAD.replace('"b"', '"a"'), "two problems have the id 'a'"),
        (LIMITED.format("language='Rust'"), "problem 'a': unknown language 'Rust': did you mean 'rust'"),
        (
            LIMITED.format("language='c', entry_point='f'").replace("stdio", "function"),
            "a program in c reads",
        ),
        (LIMITED.format("limits=Limits(memory=512)"), "problem 'a': limits.memory: 512 bytes are too little"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(mine(tmp_path, source), None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load(str(tmp_path / "mine.py"), None)


CALL = """
from agentloop.types import Problem, Suite, Test

def load(data):
    test = Test("t", "call", {"function": "f", "args": [1], "kwargs": {}}, {"value": 1}, "equal", "assert f(1) == 1")
    yield Problem("a", "mine", "s", "function", Suite("visible", ()), Suite("hidden", (test,)), entry_point="f")
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"call"', '"cal"', "problem 'a': hidden test 't': unknown kind 'cal': did you mean 'call'"),
        ('"args"', '"arg"', "hidden test 't': its input lacks 'args'"),
        ('{"value": 1}', "None", "hidden test 't': what it expects lacks 'value'"),
        ('"equal"', '"equl"', "hidden test 't': checker 'equl': unknown checker"),
        ('"equal"', '"close:x"', "hidden test 't': checker 'close:x': could not convert"),
        ("[1]", "[{1}]", "hidden test 't': not plain data: encode it with agentloop.plain.encode"),
        ("[1]", "[float('nan')]", "hidden test 't': NaN and infinity are no JSON: write {"),
        ("(test,)", "(test, test)", "problem 'a': two hidden tests have one id"),
        ('"function", Suite', '"functon", Suite', "problem 'a': unknown interface 'functon'"),
        (', entry_point="f"', "", "problem 'a': a problem with the interface 'function' has an entry_point"),
        ("yield Problem", "yield str", "load failed: TypeError: .*mine.py, line 6"),
        ("    yield", "    yield 3\n    yield", "load gives agentloop.types.Problem objects, not int"),
        ("    test", "    1 / 0\n    test", "load failed: ZeroDivisionError: division by zero .*mine.py, line 5"),
    ],
)
def test_a_mistake_of_a_function_is_named_before_anything_runs(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    assert [problem.id for problem in load(mine(tmp_path, CALL), None)] == ["a"]
    with pytest.raises(UserError, match=message):
        load(mine(tmp_path, CALL.replace(right, wrong)), None)


def test_an_entry_point_is_a_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_workloads.py").write_text(WORKLOAD, encoding="utf-8")
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n", encoding="utf-8")
    entries = "[agentloop.workloads]\nother = other_workloads:load\ngone = no_such_module_here:load\n"
    (info / "entry_points.txt").write_text(entries, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "other" in names()
    assert [problem.id for problem in load("other", None)] == ["a", "b"]
    with pytest.raises(UserError, match="'gone': entry point no_such_module_here:load cannot be imported"):
        load("gone", None)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}\n\n{"a": 2}\n',
        b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}',
        b'[{"a": 1}, {"a": 2}]',
        gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
        '{"a": 1, "b": "\u2028"}\n{"a": 2}\n'.encode(),
    ],
)
def test_lines_arrays_and_gzip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    assert [record["a"] for _, record in read_records(path)] == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot read the data file .*No such file"),
        (b"\xff\xfe", "cannot read the data file"),
        (gzip.compress(b'{"a": 1}\n' * 999)[:-20], "cannot read the data file"),
        (b"\x1f\x8bnot gzip at all", "cannot read the data file"),
        (b'{"a": 1}\n{"a": \n', "data line 2: not JSON"),
        (b'{"a": 1}\n5\n', "data line 2: a record is a JSON object, not int"),
        (b'[{"a": 1}, "x"]', "data record 2: a record is a JSON object, not str"),
        (b"[1", "not JSON"),
        (b"", "holds no record"),
    ],
)
def test_bad_data_is_one_clear_line(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "data"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        list(read_records(path))
    assert "\n" not in str(caught.value)


PROBLEMS = [
    Problem(f"HumanEval/{number}", "w", "s", "stdio", Suite("visible", ()), Suite("hidden", ()))
    for number in range(164)
]


@pytest.mark.parametrize(
    ("patterns", "every", "offset", "limit", "numbers"),
    [
        ((), None, 0, None, range(164)),
        (("HumanEval/1*",), None, 0, None, [1, *range(10, 20), *range(100, 164)]),
        (("HumanEval/7", "HumanEval/3"), None, 0, None, [3, 7]),
        (("HumanEval/[45]", "*/16?"), None, 0, None, [4, 5, 160, 161, 162, 163]),
        ((), 5, 0, 30, range(0, 150, 5)),
        ((), 5, 2, 3, [2, 7, 12]),
        ((), None, 160, None, [160, 161, 162, 163]),
        (("HumanEval/1*",), 2, 1, 2, [10, 12]),
    ],
)
def test_picking(
    patterns: Sequence[str], every: int | None, offset: int, limit: int | None, numbers: list[int]
) -> None:
    chosen = select(PROBLEMS, patterns, every, offset, limit)
    assert [problem.id for problem in chosen] == [f"HumanEval/{number}" for number in numbers]


def test_an_id_with_brackets_is_picked_by_itself() -> None:
    problems = [replace(PROBLEMS[0], id=id) for id in ("a[1]", "a1", "a[2]")]
    assert [problem.id for problem in select(problems, ["a[1]"])] == ["a[1]", "a1"]
    assert [problem.id for problem in select(problems, ["a[[]2]"])] == ["a[2]"]


def test_a_pattern_that_matches_nothing_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no problem matches 'HumanEval/1644': nearest: HumanEval/"):
        select(PROBLEMS, ["HumanEval/1", "HumanEval/1644"])


@pytest.mark.parametrize(
    ("every", "offset", "limit"), [(0, 0, None), (1, -1, None), (1, 0, -1), (1, 999, 5), (1, 0, 0)]
)
def test_nothing_left_is_an_error(every: int, offset: int, limit: int | None) -> None:
    with pytest.raises(UserError, match="problems: "):
        select(PROBLEMS, (), every, offset, limit)
