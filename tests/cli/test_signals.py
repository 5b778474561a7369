"""Ctrl-C drains, again cancels, SIGTERM cancels; nothing is left running, and the next run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli, command, settings


def begin(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """A run in a session of its own, returned when its attempts have begun."""
    process: subprocess.Popen[str] = subprocess.Popen(
        command("run", "study.toml", "-o", "attempts=1", *arguments),
        **settings(directory),  # type: ignore[call-overload]
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("8 attempts"):
            return process
    raise AssertionError(f"the run ended: {process.wait()}")


def session(leader: int) -> list[str]:
    """What still runs in a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def slow(directory: Path, seconds: float) -> None:
    script = directory / "script.toml"
    script.write_text(
        script.read_text().replace("[[rule]]", f"[[rule]]\ndelay = {seconds}").replace("delay = 0.0\n", "")
    )


def test_the_first_interrupt_finishes_what_runs_and_the_run_can_go_on(study: Path, cli: Cli) -> None:
    slow(study, 0.5)
    process = begin(study)
    assert cli("list", "runs/study").returncode == 0  # while its writer is at work
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 3, stderr
    assert "interrupted" in stderr
    assert "run again to go on" in stdout
    assert session(process.pid) == []
    rows = json.loads(cli("report", "runs/study", "--json").stdout)["rows"]
    assert sum(row["attempts"]["begun"] - row["attempts"]["done"] for row in rows) == 0
    rest = cli("run", "study.toml", "--quiet")
    assert (rest.returncode, rest.stdout) == (0, "runs/study: 8 of 8 attempts done\n")
    assert json.loads(cli("report", "runs/study", "--json").stdout)["paid"]["replies"] == 6


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=["twice", "term"])
def test_a_run_that_is_cancelled_stops_at_once(study: Path, cli: Cli, signals: tuple[signal.Signals, ...]) -> None:
    slow(study, 600)
    process = begin(study)
    assert process.stderr is not None
    for number in signals:
        process.send_signal(number)
        if number == signal.SIGINT and signals[1:]:
            next(line for line in process.stderr if "interrupted" in line or len(signals) == 1)
            os.kill(process.pid, signal.SIGINT)
            break
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert session(process.pid) == []
    rows = json.loads(cli("report", "runs/study", "--json").stdout)["rows"]
    assert [row["attempts"]["faults"] for row in rows] == [0] * len(rows)
    assert sum(row["attempts"]["unfinished"] for row in rows) == 1


FIRST_WRITE = """
import os, signal, sys
from agentloop.cli import main

class Interrupted:
    encoding, first = "utf-8", True
    def write(self, text):
        if self.first:
            self.first = False
            os.kill(os.getpid(), signal.SIGINT)
        return sys.__stdout__.write(text)
    def flush(self): sys.__stdout__.flush()
    def isatty(self): return False
    def fileno(self): return 1

sys.stdout = Interrupted()
main()
"""
AT_EXIT = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from agentloop.cli import main
main()
"""


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (FIRST_WRITE, 3, "runs/study: interrupted; all that was done is kept: agentloop report runs/study\n"),
        (AT_EXIT, 0, "agentloop show runs/study ATTEMPT\n"),
    ],
    ids=["while its table is printed", "while the interpreter is taken down"],
)
def test_an_interrupt_after_the_last_attempt_loses_no_word(finished: Path, code: str, status: int, said: str) -> None:
    line = [sys.executable, "-c", code, "run", "study.toml"]
    done = subprocess.run(line, **settings(finished), timeout=120)  # type: ignore[call-overload]
    assert done.returncode == status, done.stderr
    assert done.stdout.endswith(said)
    assert "KeyboardInterrupt" not in done.stderr
