"""Bad input: one clear line on standard error, a status that says whose turn it is, nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentloop.errors import UserError

from .conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path

STUDY = ("run", "study.toml", "--out", "out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nowhere.toml"), "experiment nowhere.toml: no such file"),
        (("run", "studdy.toml"), "no such file: did you mean study.toml?"),
        (("run", "toy.jsonl"), "it is no TOML; problems go by --workload jsonl --data toy.jsonl"),
        (("run", "graphs/own.py"), "it is no TOML; a strategy goes by --strategy graphs/own.py"),
        (("run", "runs/first"), "it is a folder; a run goes on with the command that began it"),
        (
            ("run", "study.toml", "--out", "runs"),
            "runs has runs in it (first): give a directory of its own, such as runs/",
        ),
        (("run",), "no model is given"),
        (("run", "--model", "scripted:script.toml"), "no strategy is given"),
        ((*STUDY, "--strategy", "feedbak_loop"), "did you mean 'feedback_loop'?"),
        ((*STUDY, "--strategy", "graphs/nowhere.py"), "no such file"),
        ((*STUDY, "--strategy", "graphs/owm.py"), "did you mean graphs/own.py?"),
        ((*STUDY, "--strategy", "own"), "did you mean 'graphs/own.py'? known: "),
        ((*STUDY, "-o", "strategies.0.settings.style=mine"), "did you mean 'feedback_templates/mine'? known: "),
        ((*STUDY, "--data", "nowhere.jsonl"), "nowhere.jsonl"),
        ((*STUDY, "--data", "empty.jsonl"), "empty.jsonl"),
        ((*STUDY, "--data", "toi.jsonl"), "No such file or directory: did you mean "),
        ((*STUDY, "--model", "scripted:scripd.toml"), "/script.toml?"),
        (
            (*STUDY, "--workload", "humaneval"),
            "is missing (there: 'id', 'statement', 'entry_point', 'visible', 'hidden'); "
            "problems of your own go by --workload jsonl",
        ),
        (
            ("judge", "--workload", "jsonl", "--data", "toy.jsonl", "--programs", "toyy.jsonl", "-o", "v"),
            "cannot read the programs toyy.jsonl: No such file or directory: did you mean toy.jsonl?",
        ),
        ((*STUDY, "--problems", "dubble"), "double"),
        ((*STUDY, "--model", "scripted:nowhere.toml"), "nowhere.toml"),
        ((*STUDY, "-o", "workload.limt=2"), "did you mean 'limit'?"),
        ((*STUDY, "-o", "strategies.0.settings.iteration=2"), "did you mean 'iterations'?"),
        ((*STUDY, "-o", "models=3"), "models"),
        ((*STUDY, "-o", "nonsense"), "key=value"),
        ((*STUDY, "--sandbox", "dokcer"), "did you mean 'docker'?"),
        (("report", "nowhere"), "nowhere: no such run directory"),
        (("report", "first"), "first: no such run directory: did you mean runs/first?"),
        (("report", "runs/frist"), "runs/frist: no such run directory: did you mean runs/first?"),
        (("report", "runs"), "it has runs in it: first"),
        (("list", "."), ". is not a run directory"),
        (("show", "strategy", "self_debugg"), "did you mean 'self_debug'?"),
        (("show", "template", "default/faild"), "did you mean 'failed'?"),
        (("show", "template", "failed"), "write STYLE/NAME"),
        (("show", "template", "probe"), "write STYLE/NAME: probe/compile_error, probe/failed, "),
        (("show", "runs/first", "1", "--mermaid"), "--mermaid draws a strategy"),
        (("show", "template", "default/failed", "--mermaid"), "--mermaid draws a strategy"),
        (("show", "strategy", "direct", "--json"), "--json goes with an attempt: agentloop show DIR ATTEMPT"),
        (("list", "--fault"), "--fault chooses attempts: agentloop list DIR"),
        (("replay", "runs/first", "--sandbox", "local"), "--sandbox goes with --execute"),
        (("replay", "runs/first", "--out", "copy", "--jobs", "1"), "--jobs goes with --execute"),
        (("show", "sandbox", "dokcer"), "did you mean 'docker'?"),
        (("replay", "nowhere"), "nowhere: no such run directory"),
        (("new", "strategy", "3x"), "letters, digits and _"),
        (("new", "template", "failed"), "write STYLE/NAME"),
        (("fetch", "humanevil"), "did you mean 'humaneval'?"),
        (("fetch", "local/qwen"), "unknown local model 'qwen'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_one_line_and_status_2(study: Path, cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    (study / "empty.jsonl").write_text("")
    for path in ("graphs/own.py", "feedback_templates/mine/task.j2", "runs/first/store.sqlite"):
        (study / path).parent.mkdir(parents=True)
        (study / path).write_text("def build(kit):\n")
    before = sorted(path.name for path in study.iterdir())
    done = cli(*arguments)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("agentloop: ")
    assert said in last
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in study.iterdir()) == before


def test_another_meaning_is_refused(study: Path, cli: Cli) -> None:
    assert cli(*STUDY, "--quiet").returncode == 0
    done = cli(*STUDY, "--seed", "7")
    assert done.returncode == 2
    assert "seed (was 0, is 7)" in done.stderr.splitlines()[-1]


def test_a_dead_api_base_is_not_the_users_fault_and_leaves_nothing(study: Path, cli: Cli) -> None:
    done = cli(*STUDY, "--model", "openai/any", "--api-base", "http://127.0.0.1:9/v1")
    assert done.returncode in (1, 3)
    assert "127.0.0.1:9" in done.stderr.splitlines()[-1]
    assert not (study / "out").exists()


def test_an_error_of_a_strategys_own_is_one_line_that_says_where(
    study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("new", "strategy", "broken")
    file = study / "graphs" / "broken.py"
    node = "async def wrong(state, runtime):\n    return {'code': 1 / 0}\n\n\ndef build("
    file.write_text(
        file.read_text()
        .replace("def build(", node)
        .replace("nodes.extract(tags_first=kit.style(style).tags_first)", "wrong")
    )
    done = cli(*STUDY, "--strategy", "graphs/broken.py")
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("agentloop: ")
    assert "ZeroDivisionError" in last
    assert "broken.py" in last
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("AGENTLOOP_DEBUG", "1")
    with pytest.raises(UserError):  # which Python shows with its cause
        cli(*STUDY, "--strategy", "graphs/broken.py")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--nonsense"), "agentloop: No such option: --nonsense"),
        (("judge",), "agentloop: Missing option '--workload'; see agentloop judge --help"),
        (("nonsense",), "agentloop: No such command 'nonsense'; see agentloop --help"),
        (("validate", "--workload"), "agentloop: Option '--workload' requires an argument; see agentloop"),
        (("run", "--samples", "x"), "agentloop: Invalid value for '--samples': "),
        (("judge", "--workload", "jsonl", "--jobs", "0"), "agentloop: Invalid value for '--jobs': "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage_errors_are_one_line_and_have_status_2(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith(said)


def test_nothing_typed_shows_the_help(cli: Cli) -> None:
    done = cli()
    assert (done.returncode, "Commands:" in done.stderr) == (2, True)
    assert cli("judge", "--help").returncode == 0
    assert "--programs" in cli("judge", "--help").stdout
