"""The catalog's commands, first files, upkeep, and that help is fast."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from agentloop import __version__
from agentloop.sandbox.compiled import COMPILED

from .conftest import Cli, command, settings

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {"rich", "langgraph", "litellm", "jinja2", "asyncio", "sqlite3", "docker"}


def test_version(cli: Cli) -> None:
    assert cli("--version").stdout == f"agentloop {__version__}\n"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    # Typer itself takes pydantic for a command's options.
    for arguments, heavy in ((["--help"], HEAVY | {"pydantic"}), (["run", "--help"], HEAVY)):
        line = command(*arguments)
        done = subprocess.run([line[0], "-X", "importtime", *line[1:]], **settings(tmp_path), timeout=60)  # type: ignore[call-overload]
        assert done.returncode == 0
        loaded = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.splitlines()}
        assert "typer" in loaded
        assert not loaded.intersection(heavy)
        assert max(map(len, done.stdout.splitlines())) <= 100


def test_list_without_a_directory_is_the_catalog(cli: Cli) -> None:
    text = cli("list").stdout
    assert text == cli("list", "catalog").stdout
    assert max(map(len, text.splitlines())) <= 100
    data = json.loads(cli("list", "--json").stdout)
    assert {"direct", "resample", "feedback_loop", "self_debug", "reflexion", "fresh_start", "best_of_n"} <= set(
        data["strategies"]
    )
    assert {"default", "probe", "codeassay"} <= set(data["feedback styles"])
    assert {"humaneval", "mbpp", "jsonl"} <= set(data["workloads"])
    assert all(text for entries in data.values() for text in entries.values())


def test_show_strategy_and_its_drawing(cli: Cli) -> None:
    text = cli("show", "strategy", "resample").stdout
    assert "iterations  3" in text
    assert "heat        0.8" in text
    loop = cli("show", "strategy", "feedback_loop").stdout
    assert '  on_repeat    "restart", or "keep", "nudge", "heat", "stop"\n' in loop
    assert '  repair_heat  0.8, or "same"\n' in loop
    drawing = cli("show", "strategy", "resample", "--mermaid").stdout
    assert "decide -.-> again" in drawing
    assert "generate --> extract" in drawing


def test_a_strategy_is_drawn_before_its_templates_are_written(study: Path, cli: Cli) -> None:
    cli("new", "strategy", "mine")
    file = study / "graphs" / "mine.py"
    file.write_text(file.read_text().replace('kit.template(style, "task")', 'kit.template(style, "hint")'))
    drawing = cli("show", "strategy", "graphs/mine.py", "--mermaid")
    assert (drawing.returncode, "generate --> extract" in drawing.stdout) == (0, True), drawing.stderr
    run = cli("run", "study.toml", "--strategy", "graphs/mine.py", "--dry-run")
    assert (run.returncode, "unknown template of style 'default' 'hint'" in run.stderr) == (2, True)


def test_every_command_is_told_whole_in_80_columns(tmp_path: Path) -> None:
    text = str(subprocess.run(command("--help"), **settings(tmp_path, COLUMNS="80"), timeout=60).stdout)  # type: ignore[call-overload]
    assert len(text.splitlines()) > 15
    assert [
        line for line in text.splitlines() if len(line) > 80 or (line.endswith("...") and "Usage" not in line)
    ] == []


def test_show_template_and_sandbox(cli: Cli) -> None:
    text = cli("show", "template", "default/failed").stdout
    assert "fields" in text
    assert "{{ test }}" in text
    assert 'backend = "docker"' in cli("show", "sandbox", "docker").stdout
    assert cli("show", "sandbox", "auto").stdout.startswith("auto: docker where an engine answers")


def test_a_new_strategy_with_a_new_template_runs_as_it_is(study: Path, cli: Cli) -> None:
    assert cli("new", "strategy", "mine").returncode == 0
    assert cli("new", "template", "own/failed").returncode == 0
    style = "strategies.0.settings.style=feedback_templates/own"
    run = cli("run", "study.toml", "--strategy", "graphs/mine.py", "-o", style, "--out", "out", "--quiet")
    assert (run.returncode, run.stdout) == (0, "out: 4 of 4 attempts done\n"), run.stderr
    row = json.loads(cli("report", "out", "--json").stdout)["rows"][0]
    assert (row["strategy"], row["hidden"]["initial"], row["hidden"]["final"]) == ("mine", 1, 2)


def test_new_files_never_replace_one(study: Path, cli: Cli) -> None:
    cli("new", "strategy", "mine")
    cli("new", "template", "own/extra")
    files = [study / "graphs" / "mine.py", study / "feedback_templates" / "own" / "extra.j2"]
    for file in files:
        file.write_text("precious")
    assert cli("new", "strategy", "mine").returncode == 2
    assert cli("new", "template", "own/extra").returncode == 2
    assert [file.read_text() for file in files] == ["precious", "precious"]
    # A template more in a style that is there brings no others with it.
    before = len(list(files[1].parent.iterdir()))
    assert cli("new", "template", "own/second").returncode == 0
    assert len(list(files[1].parent.iterdir())) == before + 1


def test_doctor_names_what_is_there_and_what_to_do(cli: Cli, sandbox: str) -> None:
    done = cli("doctor")
    assert done.returncode == (0 if sandbox == "local" else done.returncode)
    for name in (
        "docker",
        "local:",
        "local-reduced",
        "local/qwen2.5-coder-0.5b",
        "providers: no key is set",
        "humaneval",
        *(f"compiler {language} in {sandbox}: " for language in COMPILED),
    ):
        assert name in done.stdout
    for line, following in zip(done.stdout.splitlines(), [*done.stdout.splitlines()[1:], ""], strict=True):
        if line.startswith("missing"):
            assert "->" in following


def test_clean_removes_what_a_dead_reader_left_and_no_more(tmp_path: Path, cli: Cli) -> None:
    dead, alive = (tmp_path / "tmp" / f"agentloop-read-{pid}-x" for pid in (2**22 + 1, os.getpid()))
    for path in (dead, alive):
        path.mkdir()
    done = cli("clean")
    assert done.returncode == 0, done.stderr
    assert f"removed {dead}" in done.stdout
    assert (dead.exists(), alive.exists()) == (False, True)
