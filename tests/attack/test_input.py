"""Hostile input to the command line and the catalog: one clear line, never a silent success, never a raw traceback."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from agentloop import cli
from agentloop.catalog import Kit, find, load_strategy, root
from agentloop.config import StrategyConfig, parse
from agentloop.errors import UserError
from agentloop.manifest import copies, copy_files
from agentloop.planning import plan_strategy
from agentloop.replay import replay_into
from agentloop.store import Store

TABLES = {"models": [{"name": "scripted:x"}], "strategies": [{"name": "direct"}]}


def _command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentloop", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\nb"])
def test_an_experiments_name_is_the_name_of_one_folder(name: str) -> None:
    with pytest.raises(UserError, match="name = "):
        parse({**TABLES, "name": name})


@pytest.mark.parametrize("name", ["stall_study", "v1.2", "größer als", ".hidden"])
def test_ordinary_names_are_taken(name: str) -> None:
    assert parse({**TABLES, "name": name}).name == name


def test_a_strategy_file_that_exits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UserError, match=r"leaving.py cannot be loaded: SystemExit"):
        load_strategy(str(tmp_path / "leaving.py"))


def test_a_build_that_exits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("def build(kit):\n    raise SystemExit(0)\n")
    with pytest.raises(UserError, match=r"build failed: SystemExit"):
        plan_strategy(StrategyConfig(name=str(tmp_path / "leaving.py")), None, None)


def test_an_annotation_without_meaning_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("from __future__ import annotations\ndef build(kit, *, x: Nope = 3): ...\n")
    with pytest.raises(UserError, match=r"annotation of build: NameError: name 'Nope'"):
        load_strategy(str(tmp_path / "odd.py")).resolve({}, Kit())


def test_a_tilde_is_the_home_folder_wherever_a_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text("")
    assert find("graphs", "~/mine.py", Path("/")) == (tmp_path / "mine.py").resolve()
    with pytest.raises(UserError, match="home"):
        find("graphs", "~nobody-of-this-name/mine.py")


def test_a_path_that_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(monkeypatch, "report", "x" * 5000) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("File name too long\n")


def test_a_journal_is_not_driven_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not an empty directory"):
        asyncio.run(replay_into(tmp_path, tmp_path / "file"))


@pytest.mark.parametrize("new", ["../new", "ü" * 3000])
def test_an_edited_strategy_under_a_new_label_keeps_a_copy_of_its_own(tmp_path: Path, new: str) -> None:
    text = (root() / "graphs" / "direct.py").read_text()
    mine, run = tmp_path / "mine.py", tmp_path / "run"
    for label, now in {"old": text, new: text.replace('"submit"', '"hand_in"')}.items():
        mine.write_text(now)
        copy_files(run, {label: plan_strategy(StrategyConfig(name=str(mine), label=label), None, None)})
    for label, node in {"old": "submit", new: "hand_in"}.items():
        config = StrategyConfig(name=str(mine), label=label)
        assert node in plan_strategy(config, None, None, copies(run, label)).graph.nodes
    assert not (tmp_path / "new").exists()


def test_a_copy_that_a_crash_left_half_written_is_mended(tmp_path: Path) -> None:
    planned = {"direct": plan_strategy(StrategyConfig(name="direct"), None, None)}
    copy_files(tmp_path, planned)
    half = tmp_path / "catalog" / "graphs" / "direct.py"
    half.write_text(half.read_text()[:100])
    copy_files(tmp_path, planned)
    kept = plan_strategy(StrategyConfig(name="direct"), None, None, copies(tmp_path, "direct"))
    assert kept.manifest() == planned["direct"].manifest()


def test_a_store_that_lacks_a_table_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(tmp_path)
    store.set_meta("manifest", {"strategies": {}, "models": {}})
    store.db.execute("DROP TABLE grades")
    store.db.execute("INSERT INTO problems VALUES(1, 'w', 'p', '', x'')")
    store.attempt(1, "model", "direct", 0)
    store.close()
    assert _command(monkeypatch, "list", str(tmp_path)) != 0
    said = capsys.readouterr().err
    assert "damaged" in said
    assert said.count("\n") == 1
