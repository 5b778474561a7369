"""`agentloop validate`: references decide what is sound, and `judge` and `run` go by it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import agentloop
from agentloop import validation
from agentloop.config import parse
from agentloop.errors import UserError
from agentloop.planning import make_plan
from agentloop.sandbox import open_sandbox
from agentloop.types import Problem
from agentloop.workloads import load
from tests.test_judging import programs

BUSY = "import time\ndef f(n):\n    while time.process_time() < 0.5:\n        pass\n    return n\n"


def record(id: str, reference: str | None, value: int = 1, **more: object) -> dict[str, object]:
    references = [reference] if reference else []
    test = {"args": [1], "value": value}
    return {"id": id, "statement": "f", "entry_point": "f", "hidden": [test], "references": references, **more}


PROBLEMS = [
    record("sound", "def f(n):\n    return n\n"),
    record("wrong", "def f(n):\n    return n\n", value=2),
    record("example", "def f(n):\n    return n\n", visible=[{"args": [1], "value": 1}, {"args": [2], "value": 3}]),
    record("slow", BUSY, limits={"cpu": 0.4, "wall": 30}),
    record("none", None),
]


@pytest.fixture
def problems(tmp_path: Path) -> list[Problem]:
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(each) + "\n" for each in PROBLEMS))
    return load("jsonl", tmp_path / "problems.jsonl")


def test_references_decide(tmp_path: Path, problems: list[Problem], sandbox: str) -> None:
    found = asyncio.run(validation.validate(problems, sandbox=open_sandbox(sandbox, lanes=2)))
    assert found.quarantined == {"wrong": "its reference does not pass hidden test h1: failed"}
    assert found.dropped == {"example": ["v2"]}
    assert found.unproven == ["none"]
    assert (found.problems, found.references, found.faults) == (5, 4, {})
    assert set(found.limits) == {"slow"}  # 0.5 s and a little: three times that is above its own 0.4 s
    assert 1.5 <= found.limits["slow"]["cpu"] < 3
    path = tmp_path / "v.json"
    validation.write(found, path)
    assert validation.read(path) == found

    sound = {problem.id: problem for problem in validation.apply(found, problems, path)}
    assert [test.id for test in sound["example"].visible.tests] == ["v1"]
    assert sound["example"].notes == ("example dropped: v2: the reference does not pass it",)
    assert sound["slow"].limits.cpu == found.limits["slow"]["cpu"]
    assert sound["sound"] == problems[0]

    file = programs(tmp_path, *({"problem_id": id, "code": BUSY} for id in ("slow", "wrong")))
    judged = agentloop.judge_programs(
        file,
        tmp_path / "out.jsonl",
        workload="jsonl",
        data=tmp_path / "problems.jsonl",
        validated=path,
        sandbox=sandbox,
    )
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["outcome"], second["outcome"], second["left_out"]) == ("passed", None, found.quarantined["wrong"])
    assert (judged.left_out, judged.outcomes) == (1, {"passed": 1})

    tables = {
        "workload": {"name": "jsonl", "data": "problems.jsonl", "validated": "v.json"},
        "models": [{"name": "scripted:model.toml"}],
        "strategies": [{"name": "direct"}],
    }
    (tmp_path / "model.toml").write_text('[[rule]]\nreplies = ["nothing"]\n')
    plan = make_plan(parse(tables), tmp_path)
    assert [problem.id for problem in plan.problems] == ["sound", "example", "slow", "none"]
    assert (plan.validated, plan.left_out) == (found.digest(), found.quarantined)


def test_of_several_references_the_first_that_fails_is_named(tmp_path: Path, sandbox: str) -> None:
    """The last one is the quickest: which one ends first must not be seen in the file."""
    right, slow, quick = (
        "def f(n):\n    return n\n",
        BUSY.replace("return n", "return n + (n > 1)"),
        "def f(n): pass\n",
    )
    hidden = [{"args": [1], "value": 1}, {"args": [3], "value": 3}]
    visible = [{"args": [2], "value": 2}, {"args": [0], "value": 0}, {"args": [4], "value": 4}]
    one = {**record("f", None), "hidden": hidden, "visible": visible, "references": [right, slow, quick, quick]}
    (tmp_path / "problems.jsonl").write_text(json.dumps(one))
    found = asyncio.run(
        validation.validate(load("jsonl", tmp_path / "problems.jsonl"), sandbox=open_sandbox(sandbox, lanes=2))
    )
    assert found.quarantined == {"f": "its reference 2 of 4 does not pass hidden test h2: failed"}
    assert found.dropped == {"f": ["v1", "v2", "v3"]}


def test_a_checker_that_fails_names_the_reference(tmp_path: Path, sandbox: str) -> None:
    (tmp_path / "c.py").write_text("def agrees(stdin, stdout, expected):\n    return int(stdout) == 1\n")
    test = {"stdout": "", "checker": "c.py"}
    data = tmp_path / "problems.jsonl"
    data.write_text(
        json.dumps({"id": "one", "statement": "s", "hidden": [test], "references": ["print(1)", "print('what')"]})
    )
    with pytest.raises(UserError, match=r"^reference 2 of problem 'one': a checker of yours failed: ValueError"):
        agentloop.validate(tmp_path / "out.json", workload="jsonl", data=data, sandbox=sandbox)


def test_judging_by_examples_leaves_out_a_problem_that_has_lost_them_all(tmp_path: Path, sandbox: str) -> None:
    identity = "def f(n):\n    return n\n"
    records = [
        record("lost", identity, visible=[{"args": [1], "value": 2}]),
        record("kept", identity, visible=[{"args": [1], "value": 1}]),
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    found = asyncio.run(
        validation.validate(load("jsonl", tmp_path / "problems.jsonl"), sandbox=open_sandbox(sandbox, lanes=2))
    )
    validation.write(found, tmp_path / "v.json")
    file = programs(tmp_path, *({"problem_id": id, "code": identity} for id in ("lost", "kept")))
    told = {}
    for suite in ("visible", "hidden", "all"):
        out = tmp_path / f"{suite}.jsonl"
        agentloop.judge_programs(
            file, out, workload="jsonl", data=tmp_path / "problems.jsonl", validated=tmp_path / "v.json",
            suite=suite, sandbox=sandbox,
        )  # fmt: skip
        told[suite] = [
            (line["outcome"], line.get("left_out")) for line in map(json.loads, out.read_text().splitlines())
        ]
    passed = ("passed", None)
    lost = (None, "no visible example is left: its reference does not pass them")
    assert told == {"visible": [lost, passed], "hidden": [passed, passed], "all": [passed, passed]}


def test_from_python_with_the_words_of_the_command(tmp_path: Path, problems: list[Problem], sandbox: str) -> None:
    out = tmp_path / "new" / "v.json"
    found = agentloop.validate(out, workload="jsonl", data=tmp_path / "problems.jsonl", sandbox=sandbox)
    assert (list(found.quarantined), validation.read(out)) == (["wrong"], found)
    with pytest.raises(UserError, match="name another one"):
        agentloop.validate(tmp_path / "problems.jsonl", workload="jsonl", data=tmp_path / "problems.jsonl")


def test_only_a_validation_is_replaced(tmp_path: Path, problems: list[Problem]) -> None:
    data, earlier = tmp_path / "problems.jsonl", tmp_path / "v.json"
    with pytest.raises(UserError, match=r"problems.jsonl is there and no file of `agentloop validate`: name another"):
        validation.check_target(data)
    validation.write(validation.Validated("earlier"), earlier)
    validation.check_target(earlier)
    validation.check_target(tmp_path / "new.json")


def test_a_validation_of_something_else_is_refused(tmp_path: Path, problems: list[Problem]) -> None:
    found = validation.Validated(validation.workload_digest(problems[:2]))
    with pytest.raises(UserError, match="another workload or another version"):
        validation.apply(found, problems, tmp_path / "v.json")
    (tmp_path / "v.json").write_text("{}")
    with pytest.raises(UserError, match="no file of `agentloop validate`"):
        validation.read(tmp_path / "v.json")
    with pytest.raises(UserError, match="no problem of this workload has a reference"):
        asyncio.run(validation.validate(problems[4:], sandbox=open_sandbox("local", lanes=1)))
