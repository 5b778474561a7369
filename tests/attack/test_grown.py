"""Runs that grew from other folders, with other files and other parts for the same models."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloop import cli
from agentloop.catalog import root
from agentloop.config import parse
from agentloop.errors import UserError
from agentloop.planning import make_plan
from agentloop.replay import replay
from agentloop.runner import run
from tests.core.conftest import ADD, fenced

BOTH = f"[code]\ndef add(a, b):\n    return a - b\n[/code]\n{fenced('return a * b + 7')}"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders, each with a style `mine` of its own."""
    (tmp_path / "problems.jsonl").write_text(json.dumps(ADD) + "\n")
    (tmp_path / "script.jsonl").write_text(json.dumps({"reply": BOTH}) + "\n")
    for name in ("one", "two"):
        shutil.copytree(root() / "feedback_templates" / "default", tmp_path / name / "mine")
        (tmp_path / name / "mine" / "style.toml").unlink()
    return tmp_path / "one", tmp_path / "two"


def tables(folder: Path, *strategies: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": {"name": "jsonl", "data": str(folder / "problems.jsonl")},
        "models": [{"name": f"scripted:{folder / 'script.jsonl'}", "label": "script"}],
        "strategies": list(strategies),
        "sandbox": "local",
    }


def grow(out: Path, *bases: Path) -> None:
    for base in bases:
        strategy = {"name": "feedback_loop", "label": base.name, "settings": {"style": "./mine"}}
        asyncio.run(run(make_plan(parse(tables(base.parent, strategy)), base), out))


def equal(out: Path) -> None:
    for frozen in (False, True):
        found = asyncio.run(replay(out, frozen=frozen))
        assert (found.equal, found.attempts, found.changed) == (True, 2, []), found.differences


def test_one_path_is_another_style_from_another_folder(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    task = folders[1] / "mine" / "task.j2"
    task.write_text(task.read_text() + "\nBe brief.\n")
    grow(tmp_path / "run", *folders)
    equal(tmp_path / "run")


@pytest.mark.parametrize("step", [1, -1])
def test_a_style_without_settings_does_not_take_those_of_its_namesake(
    tmp_path: Path, folders: tuple[Path, Path], step: int
) -> None:
    (folders[1] / "mine" / "style.toml").write_text("tags_first = true\n")
    grow(tmp_path / "run", *folders[::step])
    equal(tmp_path / "run")
    both = [{"name": "direct", "label": each.name, "settings": {"style": str(each / "mine")}} for each in folders]
    with pytest.raises(UserError, match="two different files are called 'style:mine'"):
        make_plan(parse(tables(tmp_path, *both)), tmp_path)


def test_attempts_of_a_model_that_only_plays_a_part_now_are_not_counted(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a run of which nothing is done ends as if all were well."""
    (tmp_path / "dead.jsonl").write_text('{"fault": "dead"}\n')
    told = """
    sandbox = "local"
    workload = {name = "jsonl", data = "problems.jsonl"}
    strategies = [{name = "direct"}]
    models = [{name = "scripted:script.jsonl", label = "good"%s]
    """
    ends = []
    for models in ("}", ', solver = false}, {name = "scripted:dead.jsonl", label = "dead"}'):
        (tmp_path / "e.toml").write_text(told % models)
        monkeypatch.setattr(sys, "argv", ["agentloop", "run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "run"),
                                          "--quiet"])  # fmt: skip
        try:
            cli.main()
        except SystemExit as ended:
            ends.append(ended.code)
    assert ends == [0, 3]
    assert "0 of 1 attempts done, 1 fault;" in capsys.readouterr().out


def test_a_dry_run_refuses_what_the_run_would_and_changes_nothing(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "store.sqlite").touch()  # a run that was killed at once
    told = ["agentloop", "run", "--workload", "jsonl", "--data", str(tmp_path / "problems.jsonl"), "--sandbox", "local",
            "--model", f"scripted:{tmp_path / 'script.jsonl'}", "--strategy", "direct", "--out", str(out)]  # fmt: skip
    ends = []
    for more in (["--dry-run"], ["--quiet"], ["--dry-run"], ["--dry-run", "--seed", "7"], ["--seed", "7"]):
        monkeypatch.setattr(sys, "argv", [*told, *more])
        before = (out / "store.sqlite").read_bytes()
        try:
            cli.main()
            ends.append(0)
        except SystemExit as ended:
            ends.append(int(ended.code or 0))
        assert "--quiet" in more or (out / "store.sqlite").read_bytes() == before
    assert ends == [0, 0, 0, 2, 2]
    first, second = [line for line in capsys.readouterr().err.splitlines() if line.startswith("agentloop:")]
    assert "seed (was 0, is 7)" in first
    assert first == second
