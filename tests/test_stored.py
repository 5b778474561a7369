"""What `judge` and `validate` are given and told to write: what is refused, and when, and what is taken."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentloop
from agentloop import validation
from agentloop.errors import SandboxError, UserError
from agentloop.judging import judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.sandbox.compiled import COMPILED
from agentloop.types import Execution, Job
from agentloop.workloads import load

PROBLEMS = [
    {"id": "three", "statement": "Print 3.", "hidden": [{"stdout": "3\n"}], "references": ["print(3)"]},
    {"id": "four", "statement": "Print 4.", "hidden": [{"stdout": "4\n"}], "language": "rust"},
]
RIGHT = {"problem_id": "three", "code": "print(3)"}


def jsonl(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "problems.jsonl", *PROBLEMS)


class Told:
    """An observer that keeps the lines it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def event(self, kind: str, /, **data: Any) -> None:
        if kind in ("phase", "notice"):
            self.lines.append(data["text"])


class Named:
    """A sandbox under another name, without a compiler, that may be down: what a user's own backend may be."""

    lanes = 2

    def __init__(self, inner: Any, name: str = "mine", *, down: bool = False) -> None:
        self.inner, self.name, self.down, self.started = inner, name, down, False

    async def start(self) -> dict[str, Any]:
        self.started = True
        return {**await self.inner.start(), "backend": self.name}

    async def execute(self, job: Job) -> Execution:
        if self.down and "print(3)" in job.program:
            raise SandboxError("the engine is away")
        return await self.inner.execute(job)  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self.inner.close()


def cli(folder: Path, *typed: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "agentloop.cli", *typed], cwd=folder, input=stdin, check=False,
                          capture_output=True, text=True, timeout=300)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suite": "hiden"}, "unknown suite 'hiden': did you mean 'hidden'"),
        ({"jobs": 0}, "jobs = 0: it is how many programs run at once, 1 at least"),
        ({"programs": "none.jsonl"}, "cannot read the programs none.jsonl: No such file"),
        ({"programs": "/"}, "cannot read the programs /: it is a folder"),
        ({"programs": "n" * 300}, "cannot read the programs n+: File name too long"),
        ({"out": "/dev/stdout"}, "/dev/stdout is no regular file: name one, or print the verdicts with -o -"),
        ({"out": "/dev/null"}, "/dev/null is no regular file"),
        ({"sandbox": "dokcer"}, "did you mean 'docker'"),
    ],
)
def test_what_cannot_be_is_refused_before_programs_are_read(
    tmp_path: Path, problems: Path, change: dict[str, Any], said: str
) -> None:
    settings = {"programs": jsonl(tmp_path / "programs.jsonl", {"no": "program"}), "out": tmp_path / "out.jsonl",
                "sandbox": "local", **change}  # fmt: skip
    told = Told()
    with pytest.raises(UserError, match=said):
        agentloop.judge_programs(**settings, workload="jsonl", data=problems, observer=told)
    assert told.lines == []
    assert not (tmp_path / "out.jsonl").exists()


def test_no_job_at_a_time_is_refused_by_a_validation_too(problems: Path) -> None:
    with pytest.raises(UserError, match="jobs = 0"):
        asyncio.run(validation.validate(load("jsonl", problems), sandbox=open_sandbox("local", lanes=1), jobs=0))


def test_inside_an_event_loop_the_coroutine_to_await_is_named(tmp_path: Path, problems: Path) -> None:
    file = jsonl(tmp_path / "programs.jsonl", RIGHT)

    async def inside() -> None:
        agentloop.judge_programs(file, tmp_path / "out.jsonl", workload="jsonl", data=problems)

    async def run() -> None:
        agentloop.run({}, tmp_path / "run")

    for call, named in ((inside, "await agentloop.judging.judge_programs"), (run, "await agentloop.runner.run")):
        with pytest.raises(UserError, match=named):
            asyncio.run(call())


def test_only_the_languages_of_the_programs_are_needed(tmp_path: Path, problems: Path, sandbox: str) -> None:
    """No sandbox has this compiler of Rust: only a program of the other problem can be judged."""
    file, out = jsonl(tmp_path / "programs.jsonl", RIGHT), tmp_path / "out.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COMPILED, "rust", replace(COMPILED["rust"], version=("rustc-0", "--version")))
        judged = agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=sandbox)
        assert judged.outcomes == {"passed": 1}
        jsonl(file, RIGHT, {"problem_id": "four", "code": ""})
        with pytest.raises(UserError, match="programs in rust do not work"):
            agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=sandbox)


def test_a_program_in_another_language_may_join_a_file(tmp_path: Path, need: Any) -> None:
    need("docker")
    data = jsonl(tmp_path / "problems.jsonl", PROBLEMS[0], {**PROBLEMS[1], "language": "c"})
    file, out = jsonl(tmp_path / "programs.jsonl", RIGHT), tmp_path / "out.jsonl"
    agentloop.judge_programs(file, out, workload="jsonl", data=data, sandbox="docker")
    jsonl(file, RIGHT, {"problem_id": "four", "code": '#include <stdio.h>\nint main() { puts("4"); }'})
    judged = agentloop.judge_programs(file, out, workload="jsonl", data=data, sandbox="docker")
    assert (judged.kept, judged.outcomes) == (1, {"passed": 2})


def test_a_finished_file_is_not_taken_for_another_sandboxs(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file, out = jsonl(tmp_path / "programs.jsonl", RIGHT), tmp_path / "out.jsonl"
    loaded = load("jsonl", problems)
    asyncio.run(judge_programs(loaded, file, out, sandbox=open_sandbox(sandbox, lanes=1)))
    before = out.read_bytes()
    other = Named(open_sandbox(sandbox, lanes=1))
    with pytest.raises(UserError, match=rf"its verdicts come from another sandbox \({sandbox}, now mine\)"):
        asyncio.run(judge_programs(loaded, file, out, sandbox=other))
    told, again = Told(), Named(open_sandbox(sandbox, lanes=1), sandbox)
    judged = asyncio.run(judge_programs(loaded, file, out, sandbox=again, observer=told))
    assert (judged.kept, judged.outcomes, out.read_bytes()) == (1, {"passed": 1}, before)
    assert (other.started, again.started) == (False, False)
    assert told.lines == [f"every program has its verdict already: the sandbox {sandbox} is not started"]


def test_a_dash_is_standard_input_and_output(tmp_path: Path, problems: Path, sandbox: str) -> None:
    jsonl(problems, PROBLEMS[0])
    lines = json.dumps(RIGHT) + "\n" + json.dumps({**RIGHT, "code": "print(4)"}) + "\n"
    common = ("judge", "--workload", "jsonl", "--data", str(problems), "--sandbox", sandbox, "--quiet")
    done = cli(tmp_path, *common, "--programs", "-", "-o", "-", stdin=lines)
    assert (done.returncode, done.stderr) == (0, "verdicts: hidden suite: passed 1 of 2, failed 1\n")
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["passed", "failed"]
    assert [path.name for path in tmp_path.iterdir()] == ["problems.jsonl"]


def test_a_program_that_stands_beside_a_reply_is_the_one_that_is_judged(
    tmp_path: Path, problems: Path, sandbox: str
) -> None:
    file = jsonl(tmp_path / "programs.jsonl", {**RIGHT, "response": "```python\nprint(4)\n```"})
    judged = agentloop.judge_programs(file, tmp_path / "o", workload="jsonl", data=problems, sandbox=sandbox)
    assert judged.outcomes == {"passed": 1}


def test_a_text_that_is_not_utf_8_is_told_with_what_to_do(tmp_path: Path, problems: Path) -> None:
    file = tmp_path / "programs.jsonl"
    file.write_bytes(json.dumps(RIGHT).encode() + b'\n{"problem_id": "three", "code": "# \xe9"}\n')
    with pytest.raises(UserError, match=r"line 2: not UTF-8: convert it first \(iconv"):
        agentloop.judge_programs(file, tmp_path / "o", workload="jsonl", data=problems, sandbox="local")
    problems.write_bytes(b'{"id": "\xe9"}\n')
    with pytest.raises(UserError, match=r"problems.jsonl: not UTF-8: convert it first \(iconv"):
        load("jsonl", problems)


def test_a_validation_elsewhere_is_told(tmp_path: Path, problems: Path, sandbox: str) -> None:
    jsonl(problems, PROBLEMS[0])
    loaded = load("jsonl", problems)
    path, file = tmp_path / "v.json", jsonl(tmp_path / "programs.jsonl", RIGHT)
    (tmp_path / "model.toml").write_text('[[rule]]\nreply = "nothing"\n')
    tables = {
        "workload": {"name": "jsonl", "data": str(problems), "validated": str(path)},
        "models": [{"name": f"scripted:{tmp_path / 'model.toml'}"}],
        "strategies": [{"name": "direct"}],
        "sandbox": sandbox,
    }
    for name, notices in (("elsewhere", 1), (sandbox, 0)):
        inner = Named(open_sandbox(sandbox, lanes=1), name)
        validation.write(asyncio.run(validation.validate(loaded, sandbox=inner)), path)
        told = Told()
        agentloop.judge_programs(file, tmp_path / name, workload="jsonl", data=problems, validated=path,
                                 sandbox=sandbox, observer=told)  # fmt: skip
        agentloop.run(tables, tmp_path / f"run-{name}", observer=told)
        said = [line for line in told.lines if line.startswith(f"the problems were validated in the sandbox {name},")]
        assert len(said) == 2 * notices


def test_a_fault_is_not_counted_as_sound(problems: Path, sandbox: str) -> None:
    jsonl(problems, PROBLEMS[0], {**PROBLEMS[0], "id": "other", "references": ["print('3')"]},
          {**PROBLEMS[0], "id": "none", "references": []})  # fmt: skip
    down = Named(open_sandbox(sandbox, lanes=1), down=True)
    found = asyncio.run(validation.validate(load("jsonl", problems), sandbox=down))
    assert (set(found.faults), found.unproven, found.sound) == ({"three"}, ["none"], 1)


def test_how_a_validation_ends(tmp_path: Path, problems: Path, sandbox: str) -> None:
    common = ("validate", "--workload", "jsonl", "--data", str(problems), "--sandbox", sandbox, "--quiet", "-o")
    wrong = {**PROBLEMS[0], "id": "wrong", "references": ["print(4)"]}
    jsonl(problems, PROBLEMS[0], wrong, {**PROBLEMS[0], "id": "none", "references": []})
    done = cli(tmp_path, *common, "v.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "v.json: 1 of 3 problems are sound, 1 has no reference"
    jsonl(problems, wrong)
    done = cli(tmp_path, *common, "none.json")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "none.json: 0 of 1 problems are sound, 0 have no reference"
    assert done.stderr.startswith("agentloop: no problem is sound")
    assert (tmp_path / "none.json").exists()
    for target in ("-", "/dev/null", str(tmp_path)):
        done = cli(tmp_path, *common, target)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert not Path("/dev/null").is_file()
