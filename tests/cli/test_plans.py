"""What is found out before anything is started, and what a name or a path means wherever the command is typed."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from .conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--model", "local/qwen2.5-coder-0.5"), "did you mean 'qwen2.5-coder-0.5b'?"),
        (("--model", "scripted:answer.toml"), "answer.toml"),
        (("--sandbox", "dokcer"), "docker"),
        (("--sandbox", "nowhere.toml"), "nowhere.toml"),
        (("-o", "modles.0.temperature=0.2"), "models"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(study: Path, cli: Cli, words: tuple[str, str], hint: str) -> None:
    done = cli("run", "study.toml", *words, "--dry-run")
    assert done.returncode != 0
    assert hint in done.stderr
    assert done.stdout == ""


def test_a_profile_of_a_flag_lies_where_the_command_is_typed(study: Path, cli: Cli) -> None:
    (study / "mine.toml").write_text('backend = "local"\n')
    (study / "deeper").mkdir()
    (study / "deeper" / "mine.toml").write_text('backend = "nonsense"\n')
    (study / "study.toml").rename(study / "deeper" / "study.toml")
    for name in ("toy.jsonl", "script.toml"):
        (study / name).rename(study / "deeper" / name)
    plan = cli("run", "deeper/study.toml", "--sandbox", "mine.toml", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert f"{study / 'mine.toml'}" in plan.stdout


def test_a_run_of_flags_is_called_as_its_data(study: Path, cli: Cli) -> None:
    words = ("--strategy", "direct", "--model", "scripted:script.toml", "--dry-run")
    plan = cli("run", "--workload", "jsonl", "--data", "toy.jsonl", *words)
    assert plan.stdout.startswith("run         toy into runs/toy\n"), plan.stderr


def test_a_strategy_that_is_a_file_is_set_by_its_stem(study: Path, cli: Cli) -> None:
    cli("new", "strategy", "mine")
    words = ("--strategy", "graphs/mine.py", "-o", "strategies.mine.settings.iterations=7", "--dry-run")
    plan = cli("run", "study.toml", *words)
    assert plan.returncode == 0, plan.stderr
    assert "iterations=7" in plan.stdout


def test_a_model_may_only_play_a_role(study: Path, cli: Cli) -> None:
    more = '\n[[models]]\nname = "scripted:script.toml"\nlabel = "teacher"\nsolver = false\n'
    (study / "study.toml").write_text((study / "study.toml").read_text() + more)
    once = cli("run", "study.toml", "--strategy", "direct", "--dry-run").stdout
    assert "attempts    4 " in once
    refused = cli("run", "study.toml", "-o", "models.0.solver=false", "--dry-run")
    assert "no model makes attempts" in refused.stderr


def test_a_relative_style_is_found_from_anywhere_and_its_own_settings_are_copied(
    study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cli("new", "template", "mine/hint")
    style = study / "feedback_templates" / "mine"
    (style / "style.toml").write_text('tags_first = true\n[settings]\nhistory = "full"\n')
    words = ("--strategy", "feedback_loop", "-o", "strategies.0.settings.style=feedback_templates/mine", "--quiet")
    assert cli("run", "study.toml", *words).returncode == 0
    run = study / "runs" / "study"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert cli("replay", str(run)).stdout.startswith("equal: 4 attempts")
    (style / "style.toml").write_text('[settings]\nhistory = "fresh"\n')
    changed = cli("replay", str(run))
    assert "style:mine" in changed.stdout
    assert cli("replay", str(run), "--frozen").stdout.startswith("equal: 4 attempts")


def test_a_replay_of_nothing_is_not_equal(finished: Path, cli: Cli) -> None:
    db = sqlite3.connect(finished / "runs" / "study" / "store.sqlite")
    with db:
        db.execute("UPDATE attempts SET status = 'running'")
    db.close()
    for more in ((), ("--out", "again")):
        failed = cli("replay", "runs/study", *more)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert failed.stderr == "agentloop: runs/study: nothing to replay: none of its 8 attempts is finished\n"
    assert not (finished / "again").exists()


def test_a_replay_into_a_new_directory_that_fails_leaves_nothing(finished: Path, cli: Cli) -> None:
    copied = finished / "runs" / "study" / "catalog" / "graphs" / "feedback_loop.py"
    copied.write_text(copied.read_text().replace('"task", nodes', '"other", nodes'))
    failed = cli("replay", "runs/study", "--out", "again")
    assert failed.returncode != 0
    assert not (finished / "again").exists()


def test_an_id_that_cannot_be_printed_is_refused(study: Path, cli: Cli) -> None:
    first = json.loads((study / "toy.jsonl").read_text().splitlines()[0])
    (study / "toy.jsonl").write_text(json.dumps({**first, "id": "two\nlines"}) + "\n")
    done = cli("run", "study.toml", "--dry-run")
    assert done.returncode != 0
    assert "cannot be printed" in done.stderr


def test_a_plan_fits(study: Path, cli: Cli) -> None:
    lines = cli("run", "study.toml", "--strategy", "feedback_loop", "--dry-run").stdout.splitlines()
    assert lines[3:5] == [
        "strategy    feedback_loop (iterations=2, history=fresh, on_repeat=restart, heat=0.8,",
        "            repair_heat=0.8, submit=best_visible, style=default)",
    ]
    assert max(map(len, lines)) <= 100


def test_a_ceiling_that_ends_a_run_says_what_to_do(study: Path, cli: Cli) -> None:
    done = cli("run", "study.toml", "--max-tokens", "300", "-o", "attempts=1", "--quiet")
    assert done.returncode == 3
    assert "; stopped: ceiling --max-tokens 300: 0 spent or reserved, the next call may take 1," in done.stdout
    assert ": give a higher one; run again to go on" in done.stdout
