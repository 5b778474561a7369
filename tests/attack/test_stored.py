"""Verdicts on stored programs and validations under attack: other people's files, cut and edited ones, full disks."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import agentloop
from agentloop import validation
from agentloop.errors import AgentloopError, UserError
from agentloop.hashing import digest
from agentloop.judging import judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.stored import Entry, Output
from agentloop.workloads import load

PROBLEM = {"id": "p", "statement": "Print 3.", "hidden": [{"stdin": "", "stdout": "3\n"}],
           "visible": [{"stdin": "", "stdout": "3\n"}]}  # fmt: skip
STORED = [{"problem_id": "p", "code": f"print({number})"} for number in (3, 4, 3)]


@pytest.fixture
def judge(tmp_path: Path, sandbox: str) -> Callable[..., Any]:
    """`judge(out)`: judge STORED into a file of the test's folder."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "programs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in STORED))

    def run(out: str = "out.jsonl", programs: Path | None = None, **more: Any) -> Any:
        problems = load("jsonl", tmp_path / "problems.jsonl")
        given = programs or tmp_path / "programs.jsonl"
        return asyncio.run(
            judge_programs(problems, given, tmp_path / out, sandbox=open_sandbox(sandbox, lanes=2), **more)
        )

    return run


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory, sandbox: str) -> str:
    """The verdicts on STORED, as a file's text."""
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (folder / "programs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in STORED))
    agentloop.judge_programs(folder / "programs.jsonl", folder / "out", workload="jsonl",
                             data=folder / "problems.jsonl", sandbox=sandbox)  # fmt: skip
    return (folder / "out").read_text()


def outcomes(path: Path) -> list[str]:
    return [json.loads(line)["outcome"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "text", [b"my notes, without a last newline", b"\x00\x01abc\nxyz", b'{"problem_id": "q', b"{}\n"]
)
def test_a_file_of_somebody_elses_is_left_as_it_is(judge: Callable[..., Any], tmp_path: Path, text: bytes) -> None:
    (tmp_path / "out.jsonl").write_bytes(text)
    with pytest.raises(UserError, match="no file of verdicts"):
        judge()
    assert (tmp_path / "out.jsonl").read_bytes() == text


def test_it_goes_on_after_any_byte_of_a_line(judge: Callable[..., Any], tmp_path: Path, verdicts: str) -> None:
    out = tmp_path / "out.jsonl"
    first, second, _ = verdicts.splitlines(keepends=True)
    for cut in (0, 1, 60, len(second) - 1):
        out.write_text(first + second[:cut])
        assert judge().kept == 1
        assert outcomes(out) == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    "harm",
    [
        {"outcome": "fine"},
        {"outcome": None},
        {"outcome": None, "fault": 3},
        {"trust": None},
        {"suite": ["hidden"]},
        {"judged": {}},
        {"judged": []},
        {"judged": {"line": 1, "input": "", "problem": "", "environment": [1]}},
        {"judged": {"input": "", "problem": "", "environment": ""}},
    ],
)
def test_an_edited_verdict_is_refused_in_one_line(
    judge: Callable[..., Any], tmp_path: Path, verdicts: str, harm: dict[str, Any]
) -> None:
    out = tmp_path / "out.jsonl"
    first, *rest = verdicts.splitlines(keepends=True)
    text = json.dumps(json.loads(first) | harm) + "\n" + "".join(rest)
    out.write_text(text)
    with pytest.raises(UserError, match="line 1: this is no file of verdicts"):
        judge()
    assert out.read_text() == text


def test_lines_are_mended_through_a_link_and_beside_files_of_others(
    judge: Callable[..., Any], tmp_path: Path, verdicts: str
) -> None:
    out = tmp_path / "out.jsonl"
    first, second, third = map(json.loads, verdicts.splitlines())
    faulty = second | {"outcome": None, "fault": "sandbox_error: gone"}
    out.write_text("".join(json.dumps(each) + "\n" for each in (first, faulty, third)))
    out.chmod(0o600)
    (tmp_path / "link").symlink_to(out)
    beside = tmp_path / "out.jsonl.new"
    beside.write_bytes((tmp_path / "programs.jsonl").read_bytes())
    judge("link", beside)
    assert outcomes(out) == ["passed", "failed", "passed"]
    assert (tmp_path / "link").is_symlink()
    assert out.stat().st_mode & 0o777 == 0o600
    assert beside.read_bytes() == (tmp_path / "programs.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "link", "out.jsonl", "out.jsonl.new", "problems.jsonl", "programs.jsonl"
    ]  # fmt: skip


def test_a_problem_that_was_left_out_is_not_kept_as_a_verdict(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge(left_out={"p": "its reference fails"})
    for left_out in ({}, {"p": "for another reason"}):
        with pytest.raises(UserError, match="its problem 'p' has changed since"):
            judge(left_out=left_out)
    assert judge(left_out={"p": "its reference fails"}).left_out == 3


def test_no_program_in_a_pipe_is_no_success(judge: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no program"):
        judge(programs=Path("/dev/null"))
    assert not (tmp_path / "out.jsonl").exists()


def test_an_id_of_any_length_is_told_in_one_short_line(judge: Callable[..., Any], tmp_path: Path) -> None:
    for record in ({"problem_id": "x" * 1_000_000, "code": ""}, {"x" * 1_000_000: 1}):
        (tmp_path / "programs.jsonl").write_text(json.dumps(record) + "\n")
        with pytest.raises(UserError) as error:
            judge()
        assert len(str(error.value)) < 500 + len(str(tmp_path))


def test_on_a_full_disk_no_line_is_left_half_written(tmp_path: Path) -> None:
    """The kernel's limit on the size of files stands for the disk: a write is cut where it is reached."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom agentloop.stored import Output\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "output = Output(Path(sys.argv[1]))\noutput.write({'a': 'x' * 600})\noutput.write({'b': 'x' * 600})\n"
    )
    out = tmp_path / "out.jsonl"
    ended = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True, check=False)
    assert f"AgentloopError: cannot write {out}: File too large; mend that and run again" in ended.stderr
    assert [list(json.loads(line)) for line in out.read_text().splitlines()] == [["a"]]


def test_a_full_disk_spoils_no_file_that_is_mended(tmp_path: Path) -> None:
    record = {"problem_id": "p", "code": "x"}
    line = {**record, "suite": "hidden", "outcome": None, "fault": "f", "judged": {"line": 1, "input": "i",
            "problem": "d", "environment": "e"}}  # fmt: skip
    (tmp_path / "out.jsonl").write_text(json.dumps(line) + "\n")
    output = Output(tmp_path / "out.jsonl")
    entry = Entry(1, record, "i", 1)
    assert list(output.kept(iter([entry]), {"p": "d"}, {"suite": "hidden"})) == [(entry, 0, line)]
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(AgentloopError, match="File too large"):
            output.replace({0: {"x": "y" * 20_000}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
        output.close()
    assert json.loads((tmp_path / "out.jsonl").read_text()) == line
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_ctrl_c_does_not_wait_for_a_pipe(tmp_path: Path, sandbox: str) -> None:
    """Programs come over a pipe that stays open and silent: before the first, and on going on with a file."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    out = tmp_path / "out.jsonl"
    typed = [sys.executable, "-m", "agentloop.cli", "judge", "--workload", "jsonl", "--data",
             str(tmp_path / "problems.jsonl"), "--programs", "/dev/stdin", "--sandbox", sandbox,
             "-o", str(out)]  # fmt: skip
    verdict = {**STORED[0], "suite": "hidden", "outcome": None, "fault": "f", "judged": {
        "line": 1, "input": "0" * 16, "problem": digest(asdict(load("jsonl", tmp_path / "problems.jsonl")[0]))[:16],
        "environment": "e"}}  # fmt: skip
    for kept in ("", json.dumps(verdict) + "\n"):
        out.write_text(kept)
        with subprocess.Popen(typed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stderr is not None
            assert b"checking" in running.stderr.readline()
            deadline = time.monotonic() + 60
            while not _reads(running.pid):
                assert time.monotonic() < deadline
                assert running.poll() is None
            os.kill(running.pid, signal.SIGINT)
            assert running.wait(30) == 3, running.stderr.read()
            assert out.read_text() == kept


def _reads(pid: int) -> bool:
    """Whether a thread of the process waits in `read` of its standard input."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            call = (task / "syscall").read_text().split()
        except OSError:
            continue
        if len(call) > 2 and call[0] in ("0", "63") and call[1] != "running":
            path = Path(f"/proc/{pid}/fd/{int(call[1], 16)}")
            if path.exists() and os.path.samestat(path.stat(), Path(f"/proc/{pid}/fd/0").stat()):
                return True
    return False


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_process_without_standard_streams_writes_its_verdicts(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """What a child says must not go into the file that took the number of a stream."""
    code = (
        f"import os\nfor number in {closed}: os.close(number)\n"
        "import subprocess, sys\nfor name in ('stdin', 'stdout', 'stderr'):\n"
        f"    if {{'stdin': 0, 'stdout': 1, 'stderr': 2}}[name] in {closed}: setattr(sys, name, None)\n"
        "from agentloop import cli\ncli._open_streams()\n"
        f"with open({str(tmp_path / 'f')!r}, 'w') as file:\n"
        "    subprocess.run(['sh', '-c', 'echo out; echo err >&2'])\n    print('said')\n    file.write('mine')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (ended.returncode, (tmp_path / "f").read_text()) == (0, "mine"), ended.stderr


HARM: list[dict[str, Any]] = [
    {"limits": {"p": {"cpu": -1.0, "wall": 3.0}}},
    {"limits": {"p": {"cpu": float("nan"), "wall": 3.0}}},
    {"limits": {"p": {"cpu": "4", "wall": 3.0}}},
    {"limits": {"p": {"cpu": 4.0}}},
    {"limits": {"p": {"cpu": 4.0, "wall": 9.0, "memory": 1.0}}},
    {"limits": {"p": 3}},
    {"limits": [1]},
    {"dropped": None},
    {"dropped": {"p": "v1"}},
    {"dropped": {"p": ["v9"]}},
    {"quarantined": {"q": "why"}},
    {"quarantined": ["p"]},
    {"workload": 3},
    {"more": 1},
]


@pytest.mark.parametrize("harm", HARM, ids=str)
def test_a_damaged_validation_is_refused_in_one_line(tmp_path: Path, harm: dict[str, Any]) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    problems = load("jsonl", tmp_path / "problems.jsonl")
    path = tmp_path / "v.json"
    validation.write(validation.Validated(validation.workload_digest(problems), 1, 1), path)
    assert validation.apply(validation.read(path), problems, path) == problems
    path.write_text(json.dumps(json.loads(path.read_text()) | harm))
    with pytest.raises(UserError, match=r"v\.json"):
        agentloop.judge_programs(path, tmp_path / "out", workload="jsonl", data=tmp_path / "problems.jsonl",
                                 validated=path, sandbox="local")  # fmt: skip


def test_a_validation_that_cannot_be_written_spoils_none_and_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for target in (tmp_path, tmp_path / "file" / "v.json"):
        with pytest.raises(UserError, match="cannot write"):
            validation.check_target(target)
    validation.check_target(tmp_path / "new" / "v.json")
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(UserError, match="File too large"):
            validation.write(validation.Validated("w"), tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}
