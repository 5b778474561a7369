"""A run from beginning to end: what the tables say against what the script makes happen, counted by hand."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any

from .conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path


def numbers(cli: Cli, directory: str = "runs/study") -> dict[str, Any]:
    done = cli("report", directory, "--json")
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_a_run_is_counted_as_it_happened(finished: Path, cli: Cli) -> None:
    assert "look next:" in (finished / "said").read_text()
    data = numbers(cli)
    loop, control = data["rows"]
    assert [row["strategy"] for row in data["rows"]] == ["feedback_loop", "resample"]
    # double: n + 3, then 2n. square: n + n passes visible only. triple: right. half: no program, no visible suite.
    assert loop["attempts"] == {"begun": 4, "done": 4, "faults": 0, "unfinished": 0}
    assert loop["visible"] == {"of": 3, "initial": 2, "final": 3, "any": 3}
    assert [loop["hidden"][key] for key in ("of", "initial", "final", "any", "gained", "lost")] == [4, 1, 2, 2, 1, 0]
    assert loop["visible_passed_hidden_failed"] == {"of": 3, "count": 1}
    assert loop["iterations"]["total"] == 5
    assert loop["repairs"] == {"of": 1, "same_program": 0, "same_failure": 0}
    assert loop["outcomes"]["hidden"]["final"] == {"passed": 2, "failed": 1, "no_code": 1}
    # The control draws n + 3 twice: a redraw that repeats, and nothing gained.
    assert control["redraws"] == {"of": 1, "same_program": 1, "same_failure": 1}
    assert [control["hidden"][key] for key in ("of", "initial", "final")] == [4, 1, 1]
    against = loop["control_at_equal_tokens"]
    assert (against["of"], against["hidden"], against["strategy_hidden"]) == (4, 1, 2)


def test_tokens_are_those_of_the_requests(finished: Path, cli: Cli) -> None:
    data = numbers(cli)
    prompts = replies = 0
    for line in cli("list", "runs/study", "--strategy", "feedback_loop", "--json").stdout.splitlines():
        story = json.loads(cli("show", "runs/study", str(json.loads(line)["id"]), "--json").stdout)
        for event in story["events"]:
            if event["kind"] == "prompt":
                prompts += sum(ceil(len(message["content"]) / 4) for message in event["messages"])
            if event["kind"] == "reply":
                replies += ceil(len(event["text"]) / 4)
    charged = data["rows"][0]["charged"]
    assert (charged["prompt_tokens"], charged["completion_tokens"], charged["replies"]) == (prompts, replies, 5)
    assert abs(charged["cost"] - (prompts * 1.0 + replies * 2.0) / 1e6) < 1e-12
    # The strategies share the four first replies: the control pays its one redraw only.
    assert (data["rows"][1]["charged"]["replies"], data["rows"][1]["paid"]["replies"]) == (5, 1)
    assert data["paid"]["replies"] == 6


def test_a_run_goes_on_and_grows_at_the_cost_of_what_is_new(study: Path, cli: Cli) -> None:
    assert cli("run", "study.toml", "--strategy", "feedback_loop").returncode == 0
    first = numbers(cli)
    again = cli("run", "study.toml", "--strategy", "feedback_loop", "--quiet")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "runs/study: 4 of 4 attempts done\n"
    assert numbers(cli) == first
    assert cli("run", "study.toml", "--quiet").stdout == "runs/study: 8 of 8 attempts done\n"
    assert numbers(cli)["rows"][0] == {
        **first["rows"][0],
        "control_at_equal_tokens": numbers(cli)["rows"][0]["control_at_equal_tokens"],
    }
    assert numbers(cli)["paid"]["replies"] == 6


def test_a_journal_driven_through_a_new_directory_gives_the_same_report(finished: Path, cli: Cli) -> None:
    equal = cli("replay", "runs/study")
    assert equal.returncode == 0, equal.stdout
    assert equal.stdout.startswith("equal: 8 attempts, ")
    assert cli("replay", "runs/study", "--out", "again").returncode == 0
    one, other = numbers(cli), numbers(cli, "again")
    del one["run"], other["run"]
    assert one == other


def test_a_changed_strategy_is_found_by_replay_and_named(study: Path, cli: Cli) -> None:
    cli("new", "strategy", "mine")
    assert cli("run", "study.toml", "--strategy", "graphs/mine.py", "--out", "own").returncode == 0
    file = study / "graphs" / "mine.py"
    file.write_text(file.read_text().replace("nodes.decide(iterations,", "nodes.decide(1,"))
    changed = cli("replay", "own")
    assert changed.returncode == 1
    assert "changed since the run: strategy:mine" in changed.stdout
    assert "(double, mine) from turn 1 on: step 4 (decide): " in changed.stdout
    assert "because of: strategy:mine" in changed.stdout
    assert cli("replay", "own", "--frozen").returncode == 0


def test_faults_are_counted_apart_and_end_with_status_3(study: Path, cli: Cli) -> None:
    script = study / "script.toml"
    script.write_text(
        script.read_text().replace('first = "triple"', 'first = "triple"\nfault = "authentication"\ntimes = 9')
    )
    run = cli("run", "study.toml", "--strategy", "feedback_loop")
    assert run.returncode == 3
    assert "model_error" in run.stderr
    assert "3 of 4 attempts done" in run.stdout
    row = numbers(cli)["rows"][0]
    assert row["attempts"] == {"begun": 4, "done": 3, "faults": 1, "unfinished": 0}
    assert (row["hidden"]["of"], row["hidden"]["initial"]) == (3, 0)
    listed = cli("list", "runs/study", "--fault").stdout.splitlines()
    assert len(listed) == 3  # two lines are the heads
    assert "model_error" in listed[2]


def test_dry_run_prints_the_plan_and_starts_nothing(study: Path, cli: Cli) -> None:
    plan = cli("run", "study.toml", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "problems    4 of jsonl: double, square, triple, half\n" in plan.stdout
    assert "1 of them without a visible suite: half\n" in plan.stdout
    assert "attempts    8 " in plan.stdout
    assert "calls       16 at most" in plan.stdout
    assert "cost        $0." in plan.stdout
    assert not (study / "runs").exists()


def test_flags_win_over_the_file(study: Path, cli: Cli) -> None:
    plan = cli(
        "run", "study.toml", "--strategy", "direct", "--problems", "t*", "--problems", "half", "--samples", "3",
        "--seed", "4", "-o", "models.script.temperature=0.5", "--out", "elsewhere", "--dry-run",
    )  # fmt: skip
    assert plan.returncode == 0, plan.stderr
    assert "into elsewhere" in plan.stdout
    assert "problems    2 of jsonl: triple, half\n" in plan.stdout
    assert "feedback_loop" not in plan.stdout
    assert "script (temperature 0.5" in plan.stdout
    assert "attempts    6 " in plan.stdout


def test_an_experiment_of_flags_alone(study: Path, sandbox: str, cli: Cli) -> None:
    run = cli(
        "run", "--workload", "jsonl", "--data", "toy.jsonl", "--model", "scripted:script.toml", "--strategy", "direct",
        "--limit", "2", "--sandbox", sandbox, "--quiet",
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "runs/toy: 2 of 2 attempts done\n"), run.stderr


def test_every_strategy_is_read_as_what_it_is(study: Path, cli: Cli) -> None:
    names = ("direct", "best_of_n", "fresh_start", "reflexion", "self_debug")
    flags = [flag for name in names for flag in ("--strategy", name)]
    run = cli("run", "study.toml", *flags, "--quiet")
    assert (run.returncode, run.stdout) == (0, "runs/study: 20 of 20 attempts done\n"), run.stderr
    rows = {row["strategy"]: row for row in numbers(cli)["rows"]}
    found = {name: (row["iterations"]["total"], row["hidden"]["final"]) for name, row in rows.items()}
    # direct: one program each. best_of_n: two branches each. fresh_start: the loop inside it repairs double, and its
    # programs are counted once. self_debug: one explanation before that repair.
    assert {name: found[name] for name in ("direct", "best_of_n", "fresh_start", "self_debug")} == {
        "direct": (4, 1), "best_of_n": (8, 1), "fresh_start": (5, 2), "self_debug": (5, 2),
    }  # fmt: skip
    assert rows["self_debug"]["charged_by_role"]["explainer"]["replies"] == 1
    assert rows["best_of_n"]["repairs"]["of"] + rows["best_of_n"]["redraws"]["of"] == 0
    story = cli("show", "runs/study", "triple:best_of_n").stdout
    places = [
        story.find(part) for part in ("fan -> ", "branch 0, candidate 0", "branch 1, candidate 0", "select -> END")
    ]
    assert places[1:] == sorted(places[1:])
    assert -1 not in places[1:]
    assert "submitted: candidate 0 of branch 0; visible suite passed, hidden suite passed" in story
