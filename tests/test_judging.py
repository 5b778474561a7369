"""`agentloop judge` and `agentloop.judge_programs`: real programs in a real sandbox, verdicts worked out by hand."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import agentloop
from agentloop.errors import IN_A_ROW, SandboxError, UserError
from agentloop.judging import judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.types import Execution, Job
from agentloop.workloads import load

PROBLEMS = [
    {
        "id": "double", "statement": "Write double(n): twice n.", "entry_point": "double",
        "visible": [{"args": [2], "value": 4}], "hidden": [{"args": [3], "value": 6}, {"args": [-1], "value": -2}],
        "stub": "def double(n):\n",
    },
    {
        "id": "area", "statement": "Write area(r).", "entry_point": "area", "prelude": "import math\n",
        "hidden": [{"script": "assert 3.1 < area(1) < 3.2"}, {"script": "assert area(0) == 0", "in_process": True}],
    },
    {
        "id": "sum", "statement": "Print the sum of a line.", "limits": {"cpu": 0.3},
        "hidden": [{"stdin": "1 2\n", "stdout": "3\n"}],
    },
]  # fmt: skip
GOOD = "def double(n):\n    return n + n\n"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in PROBLEMS))
    return path


def programs(folder: Path, *records: Any) -> Path:
    path = folder / "programs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_verdicts_and_what_they_rest_on(tmp_path: Path, problems: Path, sandbox: str) -> None:
    given = [
        ({"problem_id": "double", "code": GOOD, "model": "a", "n": [1]}, "passed", ""),
        ({"problem_id": "double", "code": "def double(n):\n    return n * n\n"}, "failed", ""),
        ({"problem_id": "double", "code": "def double(n)\n"}, "compile_error", "SyntaxError"),
        ({"problem_id": "double", "code": "import os\nos._exit(0)\n"}, "runtime_error", "early_exit"),
        ({"problem_id": "double", "code": "def double(n):\n    return 2 * n\x00"}, "compile_error", None),
        ({"problem_id": "double", "code": " \n"}, "no_code", "empty"),
        ({"problem_id": "double", "code": None, "response": f"Sure.\n```python\n{GOOD}```\n"}, "passed", ""),
        ({"problem_id": "double", "response": "I cannot help with that."}, "no_code", "refusal"),
        ({"problem_id": "area", "code": "def area(r):\n    return math.pi * r * r\n"}, "passed", ""),
        ({"problem_id": "double", "code": "    m = n\n    return m + n\n"}, "passed", ""),
        ({"problem_id": "sum", "code": "while True: pass"}, "timeout", "cpu_limit"),
        ({"problem_id": "sum", "code": "print(sum(map(int, input().split())))\n"}, "passed", ""),
    ]
    out = tmp_path / "out.jsonl"
    file = programs(tmp_path, *(record for record, _, _ in given))
    judged = agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=sandbox)
    found = lines(out)
    for (record, outcome, detail), line in zip(given, found, strict=True):
        assert line["outcome"] == outcome, line
        assert detail is None or line["detail"] == detail
        assert {key: line[key] for key in record if key != "code"} == {k: v for k, v in record.items() if k != "code"}
    assert judged.outcomes == {"passed": 5, "failed": 1, "compile_error": 2, "runtime_error": 1, "no_code": 2,
                               "timeout": 1}  # fmt: skip
    wrong = found[1]
    assert (wrong["passed"], wrong["total"], wrong["suite"]) == (0, 2, "hidden")
    assert [(test["id"], test["got"], test["expected"]) for test in wrong["tests"]] == [
        ("h1", "9", "6"),
        ("h2", "1", "-2"),
    ]
    assert 0 < wrong["tests"][0]["cpu"] < 4
    assert wrong["tests"][0]["memory"] > 2**20
    assert "got" not in found[0]["tests"][0]
    assert found[6]["code"] == GOOD
    assert found[6]["extraction"]["rule"] == "fence"
    assert found[8]["extraction"] == {"rule": "code", "detail": "", "added": ["imports: math"]}
    assert (found[8]["trust"], found[0]["trust"], judged.in_process) == ("in_process", "separate", 1)
    assert found[10]["limits"]["cpu"] == 0.3
    assert found[0]["isolation"].startswith(sandbox)


def test_suites(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file = programs(tmp_path, {"problem_id": "double", "code": "def double(n):\n    return n * n"})
    totals = {}
    for suite in ("visible", "hidden", "all"):
        out = tmp_path / f"{suite}.jsonl"
        agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=sandbox, suite=suite)  # type: ignore[arg-type]
        [line] = lines(out)
        totals[suite] = (line["outcome"], line["passed"], line["total"])
    assert totals == {"visible": ("passed", 1, 1), "hidden": ("failed", 0, 2), "all": ("failed", 1, 3)}


def test_up_to_the_first_failure(tmp_path: Path, sandbox: str) -> None:
    tests = [{"args": [n], "value": n} for n in range(7)]
    data = programs(tmp_path, {"id": "same", "statement": "f", "entry_point": "f", "hidden": tests}).rename(
        tmp_path / "problems.jsonl"
    )
    codes = {
        "def f(n):\n    return n": ("passed", 7, 7),
        "def f(n):\n    return n if n < 3 else [][0] if n > 3 else -1": ("failed", 3, 4),
        "def f(n):\n    return -n if n else [][0]": ("runtime_error", 0, 1),
        "def f(n):": ("compile_error", 0, 1),
    }
    file = programs(tmp_path, *({"problem_id": "same", "code": code} for code in codes))
    settings: dict[str, Any] = {"workload": "jsonl", "data": data, "sandbox": sandbox}
    agentloop.judge_programs(file, tmp_path / "cut.jsonl", **settings, first_failure=True)
    agentloop.judge_programs(file, tmp_path / "whole.jsonl", **settings)
    cut, whole = lines(tmp_path / "cut.jsonl"), lines(tmp_path / "whole.jsonl")
    assert [(line["outcome"], line["passed"], len(line["tests"])) for line in cut] == list(codes.values())
    assert [(line["outcome"], line["detail"], line["total"]) for line in cut] == [
        (line["outcome"], line["detail"], 7) for line in whole
    ]
    assert [len(line["tests"]) for line in whole] == [7] * 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a stored program is a JSON object, not list"),
        ('{"code": "x"}', "line 2: key 'problem_id' is missing (there: 'code')"),
        ('{"problem_id": 3, "code": "x"}', "line 2: key 'problem_id' must be a string"),
        ('{"problem_id": "doubel", "code": "x"}', "line 2: unknown problem 'doubel': did you mean 'double'?"),
        ('{"problem_id": "double", "cod": "x"}', "line 2: there is neither 'code'"),
        ('{"problem_id": "double", "code": 3}', "line 2: 'code' and 'response' are strings"),
        ('{"problem_id": "double", "code": "x", "outcome": 1}', "line 2: key 'outcome' is one that a verdict has"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_a_bad_line_is_named_before_anything_runs(tmp_path: Path, problems: Path, line: str, said: str) -> None:
    file = tmp_path / "programs.jsonl"
    file.write_text(json.dumps({"problem_id": "double", "code": GOOD}) + "\n" + line + "\n")
    with pytest.raises(UserError) as error:
        agentloop.judge_programs(file, tmp_path / "out.jsonl", workload="jsonl", data=problems, sandbox="local")
    assert said in str(error.value)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b'{"problem_id": "double", "code": "x"}'), "line 1: it is compressed: unpack it first"),
        (b'[\n {"problem_id": "double", "code": "x"}\n]\n', "line 1: it is a JSON array: write one object a line"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path: Path, problems: Path, content: bytes, said: str) -> None:
    (tmp_path / "programs").write_bytes(content)
    out = tmp_path / "out.jsonl"
    with pytest.raises(UserError, match=said):
        agentloop.judge_programs(tmp_path / "programs", out, workload="jsonl", data=problems, sandbox="local")


def test_paths_may_be_texts_in_the_coroutine_too(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file, out = programs(tmp_path, {"problem_id": "double", "code": GOOD}), tmp_path / "out.jsonl"
    found = load("jsonl", problems)
    asyncio.run(judge_programs(found, str(file), str(out), sandbox=open_sandbox(sandbox, lanes=1), jobs=1))
    assert [line["outcome"] for line in lines(out)] == ["passed"]


@pytest.mark.parametrize(("given", "wall"), [("cpu = 6", 22.5), ("cpu = 2", 15.0), ("cpu = 6\nwall = 5", 5.0)])
def test_more_cpu_time_of_a_profile_is_not_cut_short_by_the_wall_time(
    tmp_path: Path, problems: Path, sandbox: str, given: str, wall: float
) -> None:
    profile = tmp_path / "slow.toml"
    profile.write_text(f'description = "slow"\nbackend = "{sandbox}"\n[limits]\n{given}\n')
    file, out = programs(tmp_path, {"problem_id": "double", "code": GOOD}), tmp_path / "out.jsonl"
    agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=str(profile))
    assert [line["limits"]["wall"] for line in lines(out)] == [wall]


def test_a_suite_without_tests_is_refused(tmp_path: Path, problems: Path) -> None:
    file = programs(tmp_path, {"problem_id": "sum", "code": "x"})
    with pytest.raises(UserError, match="line 1: problem 'sum' has no visible suite"):
        agentloop.judge_programs(
            file, tmp_path / "out.jsonl", workload="jsonl", data=problems, suite="visible", sandbox="local"
        )


def test_no_program_and_no_file(tmp_path: Path, problems: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    for name, said in (("empty.jsonl", "holds no program"), ("none.jsonl", "No such file")):
        with pytest.raises(UserError, match=said):
            agentloop.judge_programs(
                tmp_path / name, tmp_path / "out.jsonl", workload="jsonl", data=problems, sandbox="local"
            )


def test_a_program_of_five_megabytes_is_judged(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file = programs(tmp_path, {"problem_id": "double", "code": GOOD + "# " + "x" * 5_000_000})
    out = tmp_path / "out.jsonl"
    agentloop.judge_programs(file, out, workload="jsonl", data=problems, sandbox=sandbox)
    assert lines(out)[0]["outcome"] == "passed"


def test_it_goes_on_where_it_was_cut(tmp_path: Path, problems: Path, sandbox: str) -> None:
    records = [{"problem_id": "double", "code": f"{GOOD}# {number}"} for number in range(6)]
    out = tmp_path / "out.jsonl"
    settings: dict[str, Any] = {"workload": "jsonl", "data": problems, "sandbox": sandbox}
    agentloop.judge_programs(programs(tmp_path, *records[:4]), out, **settings)
    first = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(first[:2]) + first[2][:70])
    judged = agentloop.judge_programs(programs(tmp_path, *records), out, **settings)
    whole = out.read_bytes().splitlines(keepends=True)
    assert (judged.kept, judged.outcomes["passed"], len(whole)) == (2, 6, 6)
    assert whole[:2] == first[:2]
    assert [line["code"] for line in lines(out)] == [record["code"] for record in records]

    before = out.read_bytes()
    for other, said in [
        ([records[1], records[0]], "line 1: it judges another program than line 1 of the programs has"),
        (records[:3], "line 4: there are more verdicts than programs"),
    ]:
        with pytest.raises(UserError, match=said):
            agentloop.judge_programs(programs(tmp_path, *other), out, **settings)
    with pytest.raises(UserError, match="line 1: it was judged with suite = 'hidden', now 'all' is asked for"):
        agentloop.judge_programs(programs(tmp_path, *records), out, **settings, suite="all")
    with pytest.raises(UserError, match="first_failure = False, now True is asked"):
        agentloop.judge_programs(programs(tmp_path, *records), out, **settings, first_failure=True)
    problems.write_text(problems.read_text().replace('"value": 6', '"value": 7'))
    with pytest.raises(UserError, match="its problem 'double' has changed since"):
        agentloop.judge_programs(programs(tmp_path, *records), out, **settings)
    assert out.read_bytes() == before


def test_other_files_are_never_overwritten(tmp_path: Path, problems: Path) -> None:
    file = programs(tmp_path, {"problem_id": "double", "code": GOOD})
    out = tmp_path / "out.jsonl"
    out.write_text('{"mine": 1}\n')
    for target, said in ((out, "no file of verdicts"), (file, "holds the programs"), (tmp_path, "no regular file")):
        with pytest.raises(UserError, match=said):
            agentloop.judge_programs(file, target, workload="jsonl", data=problems, sandbox="local")
    assert out.read_text() == '{"mine": 1}\n'


def test_a_checker_of_ones_own(tmp_path: Path, sandbox: str) -> None:
    checker = "def agrees(stdin, stdout, expected):\n    return int(stdout) * 2 in map(int, stdin.split())\n"
    (tmp_path / "half.py").write_text(checker)
    test = {"stdin": "4 6\n", "stdout": "", "checker": "half.py"}
    data = tmp_path / "problems.jsonl"
    data.write_text(json.dumps({"id": "half", "statement": "Half of one of them.", "hidden": [test]}))
    file = programs(tmp_path, *({"problem_id": "half", "code": f"print({number})"} for number in (2, 3, 4)))
    out = tmp_path / "out.jsonl"
    agentloop.judge_programs(file, out, workload="jsonl", data=data, sandbox=sandbox)
    assert [line["outcome"] for line in lines(out)] == ["passed", "passed", "failed"]
    (tmp_path / "half.py").write_text("def agree(): pass")
    with pytest.raises(UserError, match="defines no function agrees"):
        load("jsonl", data)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return int(stdout) > 0", "ValueError: invalid literal"),
        ("raise SystemExit", "SystemExit, where"),
        ("import sys; sys.exit(0)", "SystemExit: 0, where"),
        ("raise type('Own', (BaseException,), {})('mine')", "Own: mine, where"),
        ("raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})", "Mute, where"),
        ("stdout == expected", "agrees gave None, which is neither True nor False, where"),
        ("return 'wrong answer'", "agrees gave 'wrong answer', which is neither"),
    ],
)
def test_a_checker_that_fails_names_the_program(tmp_path: Path, sandbox: str, body: str, said: str) -> None:
    (tmp_path / "c.py").write_text(
        f"def agrees(stdin, stdout, expected):\n    if stdout == '1\\n': return 1\n    {body}\n"
    )
    test = {"stdout": "", "checker": "c.py"}
    data = tmp_path / "problems.jsonl"
    data.write_text(json.dumps({"id": "one", "statement": "s", "hidden": [test]}))
    file = programs(tmp_path, *({"problem_id": "one", "code": f"print({text!r})"} for text in ("1", "what")))
    with pytest.raises(UserError, match=rf"line 2 of the programs \(problem 'one'\): .*{said}.* printed 'what\\n'"):
        agentloop.judge_programs(file, tmp_path / "out.jsonl", workload="jsonl", data=data, sandbox=sandbox)
    assert [line["outcome"] for line in lines(tmp_path / "out.jsonl")] == ["passed"]


def test_what_a_checker_prints_is_not_among_the_verdicts(
    tmp_path: Path, sandbox: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.py").write_text(
        "print('read')\ndef agrees(stdin, stdout, expected):\n    print('asked')\n    return 1\n"
    )
    data = tmp_path / "problems.jsonl"
    data.write_text(json.dumps({"id": "one", "statement": "s", "hidden": [{"stdout": "", "checker": "c.py"}]}))
    file = programs(tmp_path, {"problem_id": "one", "code": "print(1)"})
    agentloop.judge_programs(file, "-", workload="jsonl", data=data, sandbox=sandbox)
    told = capfd.readouterr()
    assert json.loads(told.out)["outcome"] == "passed"
    assert "asked" in told.err


class Broken:
    """A sandbox whose engine is away for some of the jobs: what a user's own backend may do."""

    name, lanes = "broken", 2

    def __init__(self, inner: Any, bad: set[str]) -> None:
        self.inner, self.bad = inner, bad

    async def start(self) -> dict[str, Any]:
        return dict(await self.inner.start())

    async def execute(self, job: Job) -> Execution:
        if any(word in job.program for word in self.bad):
            raise SandboxError("the lane was lost")
        return await self.inner.execute(job)  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self.inner.close()


def test_a_fault_is_no_verdict_and_is_judged_again(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file = programs(tmp_path, *({"problem_id": "double", "code": f"{GOOD}# {number}."} for number in range(5)))
    out = tmp_path / "out.jsonl"
    loaded = load("jsonl", problems)

    def run(bad: set[str]) -> Any:
        return asyncio.run(judge_programs(loaded, file, out, sandbox=Broken(open_sandbox(sandbox, lanes=2), bad)))

    assert (run({"# 1.", "# 3."}).faults, run({"# 3."}).faults) == (2, 1)
    found = lines(out)
    assert [line["outcome"] for line in found] == ["passed", "passed", "passed", None, "passed"]
    assert found[3]["fault"] == "sandbox_error: the lane was lost"
    assert "tests" not in found[3]
    judged = run(set())
    assert (judged.kept, judged.faults, judged.outcomes["passed"]) == (5, 0, 5)
    assert [line["code"][-2:] for line in lines(out)] == ["0.", "1.", "2.", "3.", "4."]
    assert not list(tmp_path.glob("*.new"))


def test_it_ends_when_the_sandbox_is_down(tmp_path: Path, problems: Path, sandbox: str) -> None:
    file = programs(tmp_path, *({"problem_id": "double", "code": GOOD} for _ in range(100)))
    broken = Broken(open_sandbox(sandbox, lanes=2), {"double"})
    judged = asyncio.run(judge_programs(load("jsonl", problems), file, tmp_path / "out.jsonl", sandbox=broken))
    assert judged.stopped.startswith(f"{IN_A_ROW} faults in a row")
    assert judged.faults < 40


def command(folder: Path, sandbox: str, *more: str) -> list[str]:
    given = ["--workload", "jsonl", "--data", str(folder / "problems.jsonl"), "--sandbox", sandbox, *more]
    return [sys.executable, "-m", "agentloop.cli", "judge", *given, "-o", str(folder / "out.jsonl")]


def test_a_pipe_is_judged_as_it_comes(tmp_path: Path, problems: Path, sandbox: str) -> None:
    record = (json.dumps({"problem_id": "double", "code": GOOD}) + "\n").encode()
    typed = command(tmp_path, sandbox, "--programs", "/dev/stdin")
    with subprocess.Popen(typed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(record)
        running.stdin.flush()
        waiting = threading.Event()
        deadline = time.monotonic() + 120
        while not ((tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").stat().st_size):
            assert running.poll() is None
            assert time.monotonic() < deadline
            waiting.wait(0.05)
        _, said = running.communicate(record + b"{\n")
    assert running.returncode == 2
    assert b"line 3: not JSON" in said
    assert [line["outcome"] for line in lines(tmp_path / "out.jsonl")] == ["passed", "passed"]


def test_ctrl_c_leaves_a_file_that_goes_on(tmp_path: Path, problems: Path, sandbox: str) -> None:
    slow = {"problem_id": "double", "code": "import time\n\n\ndef double(n):\n    time.sleep(12)\n"}
    programs(tmp_path, {"problem_id": "double", "code": GOOD}, slow, slow)
    typed = command(tmp_path, sandbox, "--programs", str(tmp_path / "programs.jsonl"), "--quiet")
    out = tmp_path / "out.jsonl"
    with subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        waiting, deadline = threading.Event(), time.monotonic() + 120
        while not (out.exists() and out.stat().st_size):
            assert running.poll() is None
            assert time.monotonic() < deadline
            waiting.wait(0.05)
        other = subprocess.run(typed, capture_output=True, text=True, check=False)
        assert (other.returncode, "another process writes" in other.stderr) == (2, True)
        os.kill(running.pid, signal.SIGINT)
        said, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (3, "")
    assert said == f"{out}: interrupted; run again to go on\n"
    assert [line["outcome"] for line in lines(out)] == ["passed"]
