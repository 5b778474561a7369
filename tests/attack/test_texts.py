"""Texts that no encoding has, that drive a terminal, or that were cut: stored, shown escaped, found."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

import pytest

import agentloop
from agentloop import cli
from agentloop.errors import AgentloopError, UserError
from agentloop.feedback import parse_template
from agentloop.journal import Asked, Journal
from agentloop.models import open_model
from agentloop.packing import Blobs
from agentloop.store import Store
from agentloop.types import Reply, Request

ADD = {
    "id": "add",
    "statement": "Write add(a, b).",
    "entry_point": "add",
    "visible": [{"assert": "add(1, 2) == 3"}],
    "hidden": [{"assert": "add(2, 2) == 4"}],
}
HOSTILE = "\x1b]0;owned\x07 \x00 \x9b2J lone \ud800 half\n```python\ndef add(a, b):\n    return a + b\n```\n"


def test_a_reply_of_control_characters_and_lone_surrogates_is_shown_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(ADD) + "\n")
    (tmp_path / "script.jsonl").write_text(json.dumps({"reply": HOSTILE}) + "\n")
    tables = {
        "workload": {"name": "jsonl", "data": str(tmp_path / "problems.jsonl")},
        "models": [{"name": f"scripted:{tmp_path / 'script.jsonl'}", "label": "script"}],
        "strategies": [{"name": "direct"}],
        "sandbox": "local",
    }
    assert agentloop.run(tables, tmp_path / "run").done == 1
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["agentloop", "show", str(tmp_path / "run"), "1", "--full"])
    with open(1, "w", encoding="utf-8", closefd=False) as terminal:  # as strict as a real standard output
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code in (0, None)
    shown = capfd.readouterr().out
    assert r"\x1b]0;owned\x07 \x00 \x9b2J lone \ud800 half" in shown
    assert not {"\x1b", "\x07", "\x00", "\x9b"} & set(shown)


@pytest.mark.parametrize("harm", [lambda data: data[:-3], lambda data: b"\0", lambda data: data + b"more"])
def test_a_text_that_was_cut_or_grew_is_never_taken_for_another_text(harm: object) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE blobs(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, data BLOB NOT NULL)")
    blobs = Blobs(db)
    text = "a text of some length, long enough to be a blob of its own " * 4
    number = blobs.put(text)
    assert blobs.get(number) == text
    (data,) = db.execute("SELECT data FROM blobs").fetchone()
    db.execute("UPDATE blobs SET data=?", (harm(data),))  # type: ignore[operator]
    with pytest.raises(AgentloopError, match="damaged"):
        blobs.get(number)
    db.close()


def test_a_paid_reply_is_stored_before_anyone_is_told(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text('{"reply": "paid"}\n')
    store = Store.open(tmp_path / "run")
    journal = Journal(sink=store)
    told: list[Reply] = []

    def full(reply: Reply) -> None:
        told.append(reply)
        raise OSError(28, "No space left on device")

    journal.on_reply = full
    asked, request = Asked("w:p", "m", 0, "0"), Request(({"role": "user", "content": "hello"},), {}, 0)

    async def ask() -> None:
        model = open_model(f"scripted:{tmp_path / 'script.jsonl'}")
        await model.start()
        with pytest.raises(OSError, match="No space"):
            await journal.reply(asked, request, model)
        assert (await journal.reply(asked, request, None))[1].text == "paid"
        await model.close()

    asyncio.run(ask())
    store.close()
    assert len(told) == 1


@pytest.mark.parametrize(
    "harm",
    [
        {"strategies": {"direct": 3}},
        {"strategies": {"direct": {}}},
        {"strategies": {}},
        {"models": {"model": None}},
        {"models": {"other": {"params": {}, "identity": {}}}},
        {"seed": "x"},
        {"environment_id": None},
        {"bases": {"direct": 7}},
        {"specs": {"direct": ["direct"]}},
    ],
    ids=str,
)
def test_a_manifest_that_does_not_say_what_its_rows_need_is_damaged(tmp_path: Path, harm: dict[str, object]) -> None:
    entry = {"name": "direct", "digest": "", "settings": {}, "roles": {}, "oracle": False, "files": {}}
    whole: dict[str, object] = {
        "name": "n", "created": "", "agentloop": "", "seed": 0, "workload": {}, "environment": {}, "environment_id": "",
        "strategies": {"direct": entry}, "models": {"model": {"name": "m", "params": {}, "identity": {}}},
    }  # fmt: skip
    store = Store.open(tmp_path)
    store.db.execute("INSERT INTO problems VALUES(1, 'w', 'p', '', x'')")
    store.attempt(1, "model", "direct", 0)
    store.set_meta("manifest", whole)
    assert store.manifest() == whole
    store.set_meta("manifest", whole | harm)
    with pytest.raises(AgentloopError, match="damaged"):
        store.manifest()
    store.close()


@pytest.mark.parametrize("value", ["{", "[1]", "{}", None, '{"strategies": {}, "models": {}}'])
def test_attempts_without_a_manifest_or_a_problem_are_a_damaged_store_not_an_empty_run(
    tmp_path: Path, value: str | None
) -> None:
    store = Store.open(tmp_path)
    assert store.manifest() is None
    store.attempt(1, "model", "direct", 0)
    if value is not None:
        store.db.execute("INSERT INTO meta VALUES('manifest', ?)", (value,))
    with pytest.raises(AgentloopError, match="damaged"):
        store.manifest()
    store.close()


@pytest.mark.parametrize(
    "expression", ["statement.nosuch", "1 // 0", "range(10**9)", "statement.__class__.mro()", "statement + 1"]
)
def test_a_template_that_fails_when_it_is_rendered_is_named(expression: str) -> None:
    template = parse_template("mine/task", '+++\nfields = ["statement"]\n+++\n{{ statement }}{{ ' + expression + " }}")
    with pytest.raises(UserError, match="template mine/task cannot be rendered"):
        template.render({"statement": "text"})
