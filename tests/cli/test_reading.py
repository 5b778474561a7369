"""What list, show and report print, and that they hold back nothing and lose nobody's pipe."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

from .conftest import Cli, command, settings

if TYPE_CHECKING:
    from pathlib import Path


def test_report_fits_and_names_the_suite_of_every_count(finished: Path, cli: Cli) -> None:
    text = cli("report", "runs/study").stdout
    assert max(map(len, text.splitlines())) <= 100
    assert "2 -> 3 of 3" in text  # visible, first -> final
    assert "1 -> 2 (2) of 4" in text  # hidden, first -> final (any)
    for line in text.splitlines():
        if "passed" in line and "strategy" not in line:
            assert "suite" in line


def test_list_gives_the_way_of_each_attempt(finished: Path, cli: Cli) -> None:
    lines = cli("list", "runs/study", "--strategy", "feedback_loop").stdout.splitlines()
    found = {cells[1]: cells[3:] for cells in (re.split(" {2,}", line.strip()) for line in lines[2:])}
    assert found == {
        "double": ["failed>passed", "visible suite passed", "failed>passed"],
        "square": ["failed>failed", "visible suite passed", "passed"],
        "triple": ["passed>passed", "visible suite passed", "passed"],
        "half": ["no_code>no_code", "no visible suite", "no_code"],
    }
    hidden = cli("list", "runs/study", "--outcome", "hidden:passed", "--json").stdout.splitlines()
    assert sorted((json.loads(line)["problem"], json.loads(line)["strategy"]) for line in hidden) == [
        ("double", "feedback_loop"), ("triple", "feedback_loop"), ("triple", "resample"),
    ]  # fmt: skip


def test_list_fits_and_leaves_out_what_is_the_same_everywhere(finished: Path, cli: Cli) -> None:
    lines = cli("list", "runs/study").stdout.splitlines()
    assert lines[:3] == [
        "                            hidden suite                           visible suite",
        "id  problem  strategy       first>final      why it ended          program by program",
        " 1  double   feedback_loop  failed>passed    visible suite passed  failed>passed",
    ]
    assert max(map(len, lines)) <= 100
    assert cli("run", "study.toml", "--samples", "2", "--quiet").returncode == 0
    heads = cli("list", "runs/study", "--problem", "doub*").stdout.splitlines()[1]
    assert re.split(" {2,}", heads) == [
        "id",
        "problem",
        "strategy",
        "sample",
        "first>final",
        "why it ended",
        "program by program",
    ]


def test_a_list_of_nothing_says_so(finished: Path, cli: Cli) -> None:
    assert cli("list", "runs/study", "--fault").stdout.splitlines()[2:] == ["no attempt is like that"]
    assert cli("list", "runs/study", "--fault", "--json").stdout == ""
    wrong = cli("list", "runs/study", "--problem", "dubble")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("agentloop: no problem matches 'dubble': nearest: double")


def test_show_tells_the_whole_story(finished: Path, cli: Cli) -> None:
    text = cli("show", "runs/study", "double:feedback_loop").stdout
    parts = [
        "Write double(n): twice n.", "return n + 3", "visible suite: failed, 0 of 1 tests passed",
        "test:     assert double(2) == 4", "got:      5", "expected: 4", "hidden suite: failed, 1 of 2 tests passed",
        "decide -> repair_failed", "feedback: template default/failed, by template, shows test v1",
        "-    return n + 3", "+    return n * 2", "visible suite: passed, 1 of 1 tests passed",
        "submitted: candidate 1; visible suite passed, hidden suite passed",
    ]  # fmt: skip
    place = -1
    for part in parts:
        place = text.find(part, place + 1)
        assert place >= 0, part


def test_show_names_what_a_problem_lost(tmp_path: Path, sandbox: str, cli: Cli) -> None:
    (tmp_path / "script.toml").write_text("[[rule]]\nreply = 'none'\n")
    tests = {"visible": [{"assert": "inc(1) == 3"}, {"assert": "inc(1) == 2"}], "hidden": [{"args": [2], "value": 3}]}
    problem = {"id": "inc", "entry_point": "inc", "statement": "Write inc(n).", "references": ["inc = lambda n: n + 1"]}
    (tmp_path / "own.jsonl").write_text(json.dumps(problem | tests))
    own = ("--workload", "jsonl", "--data", "own.jsonl", "--sandbox", sandbox, "--quiet")
    assert cli("validate", *own, "-o", "sound.json").returncode == 0
    words = ("--validated", "sound.json", "--strategy", "direct", "--model", "scripted:script.toml", "--out", "out")
    assert cli("run", *own, *words).returncode == 0
    notes = json.loads(cli("show", "out", "1", "--json").stdout)["notes"]
    assert notes == ["example dropped: v1: the reference does not pass it"]
    told = cli("show", "out", "1").stdout.splitlines()
    assert told[1:3] == ["  1 visible and 1 hidden tests; ended: iterations used up", f"  of the problem: {notes[0]}"]


def test_show_needs_one_attempt(finished: Path, cli: Cli) -> None:
    several = cli("show", "runs/study", "double")
    assert several.returncode == 2
    assert "double is 2 attempts" in several.stderr
    assert cli("show", "runs/study", "double:resample:script:0").returncode == 0
    assert cli("show", "runs/study", "dubble").stderr.startswith(
        "agentloop: runs/study has no problem 'dubble': did you mean double? `agentloop list runs/study` shows all 4"
    )


def test_a_reader_that_has_gone_is_no_error(finished: Path, cli: Cli) -> None:
    for arguments in (("list", "runs/study"), ("report", "runs/study"), ("show", "runs/study", "1"), ("--help",)):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command(*arguments), **{**settings(finished), "stdout": writer}, timeout=60)  # type: ignore[call-overload]
        os.close(writer)
        assert done.stderr == ""
