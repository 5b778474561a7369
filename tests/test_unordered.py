"""`agentloop judge --unordered`: a verdict is written once it is there, and a file in any order goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.judging import WINDOW, judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.types import Execution, Job
from agentloop.workloads import load

PROBLEM = {"id": "three", "statement": "Print 3.", "hidden": [{"stdout": "3\n"}]}
FIRST = "print(3)  # the first of all"


class Held:
    """A sandbox in which the first program waits until others have ended. `others` None: for ever. `down`: a fault."""

    name, lanes = "held", 2

    def __init__(self, inner: Any, others: int | None, down: str = "nothing") -> None:
        self.inner, self.others, self.down = inner, others, down
        self.ended, self.free = 0, asyncio.Event()

    async def start(self) -> dict[str, Any]:
        return dict(await self.inner.start())

    async def execute(self, job: Job) -> Execution:
        if job.program == FIRST:
            await self.free.wait()
        if self.down in job.program:
            raise SandboxError("the lane was lost")
        execution: Execution = await self.inner.execute(job)
        self.ended += 1
        if self.ended == self.others:
            self.free.set()
        return execution

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
def judge(tmp_path: Path, sandbox: str) -> Callable[..., Any]:
    """`judge(programs)`: judge them into out.jsonl, as they end. The first may wait, some be faults (`Held`)."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")

    def run(programs: list[str], others: int | None = None, down: str = "nothing", **more: Any) -> Any:
        file = tmp_path / "programs.jsonl"
        # Each after an empty line, which counts: the n-th program is line 2n.
        file.write_text("".join("\n" + json.dumps({"problem_id": "three", "code": each}) + "\n" for each in programs))
        held = Held(open_sandbox(sandbox, lanes=2), others, down)
        if others is None:
            held.free.set()
        settings = {"sandbox": held, "unordered": True, **more}
        work = judge_programs(load("jsonl", tmp_path / "problems.jsonl"), file, tmp_path / "out.jsonl", **settings)
        return asyncio.run(work)

    return run


def verdicts(path: Path) -> dict[int, str]:
    """By line of the programs. No line twice."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["judged"]["line"]: line["outcome"] for line in lines}
    assert len(found) == len(lines)
    return found


def test_a_slow_program_keeps_no_verdict_waiting(judge: Callable[..., Any], tmp_path: Path) -> None:
    programs = [FIRST, *(f"print({number})" for number in range(2 * WINDOW + 5))]
    judged = judge(programs, others=len(programs) - 1)  # in the order of the input it would never be free
    found = verdicts(tmp_path / "out.jsonl")
    assert list(found)[-1] == 2
    assert sorted(found) == [2 * number for number in range(1, len(programs) + 1)]
    assert {line for line, outcome in found.items() if outcome == "passed"} == {2, 2 * programs.index("print(3)") + 2}
    assert judged.outcomes == {"passed": 2, "failed": len(programs) - 2}


def test_it_goes_on_after_any_end(judge: Callable[..., Any], tmp_path: Path) -> None:
    out, programs = tmp_path / "out.jsonl", [FIRST, "print(4)", "print(3)", "print(5)"]
    outcomes = {2: "passed", 4: "failed", 6: "passed", 8: "failed"}
    judge(programs)
    assert verdicts(out) == outcomes
    lines = {json.loads(line)["judged"]["line"]: line for line in out.read_text().splitlines(keepends=True)}
    for kept, cut in (([], 2), ([], 8), ([8], 2), ([6, 2], 4), ([8, 4], 6), ([4, 8, 2, 6], None)):
        before = "".join(lines[number] for number in kept)
        out.write_text(before + (lines[cut][:90] if cut else ""))
        judged = judge(programs)
        assert (judged.kept, verdicts(out)) == (len(kept), outcomes)
        assert out.read_text().startswith(before)
    more = judge([*programs, "print(6)"])
    assert (more.kept, verdicts(out)) == (4, {**outcomes, 10: "failed"})


def test_a_fault_is_judged_again_in_its_place(judge: Callable[..., Any], tmp_path: Path) -> None:
    out, programs = tmp_path / "out.jsonl", [FIRST, "print(4)", "print(3)", "print(5)"]
    assert judge(programs, others=2, down="print(4)").faults == 1
    before = verdicts(out)
    assert {line for line, outcome in before.items() if outcome is None} == {4}
    judged = judge(programs)
    assert (judged.kept, judged.faults) == (4, 0)
    assert verdicts(out) == {**before, 4: "failed"}
    assert list(verdicts(out)) == list(before)


def test_what_does_not_fit_is_refused_and_stays(judge: Callable[..., Any], tmp_path: Path) -> None:
    out, programs = tmp_path / "out.jsonl", [FIRST, "print(4)", "print(3)"]
    judge(programs, others=2)
    text = out.read_text()
    last, *_ = text.splitlines(keepends=True)
    for there, changed, more, said in [
        (text, [FIRST, "print(9)", "print(3)"], {}, "it judges another program than line 4 of the programs has"),
        (text, programs[:2], {}, "there are more verdicts than programs"),
        (text, programs, {"suite": "all"}, "it was judged with suite = 'hidden', now 'all' is asked for"),
        (text, programs, {"unordered": False}, "here line 2 is due: a file in another order goes on with --unordered"),
        (text + last, programs, {}, "line 4: line . of the programs has a verdict already"),
        ("{}\n", programs, {}, "this is no file of verdicts"),
        ('{"problem_id": "q', programs, {}, "line 1: this is no file of verdicts"),
        ("notes", programs, {}, "line 1: this is no file of verdicts"),
    ]:
        out.write_text(there)
        with pytest.raises(UserError, match=said):
            judge(changed, **more)
        assert out.read_text() == there
