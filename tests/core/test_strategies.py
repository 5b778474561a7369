"""The seven strategies, each against what its drawing says, by scripts whose right outcome is known by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UserError
from agentloop.packing import Blobs
from agentloop.store import read_transitions

from .conftest import ADD, SQUARE, Study, fenced

WRONG, RIGHT, CRASH = fenced("return a - b"), fenced("return a + b"), fenced("return a.x + b")
# A program that differs in each draw: the seed is in it.
DRAWS = {"reply": fenced("return a - b - {seed}"), "template": True}
OTHER_WRONG, SYNTAX = fenced("return a * b + 1"), fenced("return a +")


def rows(run: Path, attempt: int = 1) -> list[dict[str, Any]]:
    db = sqlite3.connect(run / "store.sqlite")
    try:
        return list(read_transitions(db, Blobs(db), attempt).values())
    finally:
        db.close()


def nodes_of(run: Path, attempt: int = 1, path: str = "") -> list[str]:
    return [row["node"] for row in rows(run, attempt) if row["path"] == path]


def candidates(run: Path, attempt: int = 1) -> list[dict[str, Any]]:
    found = {}
    for row in rows(run, attempt):
        for candidate in row["data"]["update"].get("candidates", []):
            found[candidate["path"], candidate["index"]] = candidate
    return list(found.values())


def last(run: Path, key: str, attempt: int = 1) -> Any:
    return [row["data"]["update"][key] for row in rows(run, attempt) if key in row["data"]["update"]][-1]


def test_direct_makes_one_candidate_and_ends(study: Study) -> None:
    _, run = study([{"reply": WRONG}], ["direct"])
    assert nodes_of(run) == ["task", "generate", "extract", "run", "submit"]
    (only,) = candidates(run)
    assert (only["outcome"], only["passed"], only["total"]) == ("failed", 1, 2)
    assert only["failure"]["show"].strip() == "assert add(1, 2) == 3"
    assert (only["failure"]["got"], only["failure"]["expected"]) == ("-1", "3")


@pytest.mark.parametrize(
    ("first", "outcome", "detail"),
    [
        (WRONG, "failed", ""),
        (CRASH, "runtime_error", "AttributeError"),
        (SYNTAX, "compile_error", "SyntaxError"),
        (fenced("while True: pass"), "timeout", ""),
        ("I cannot help with that.", "no_code", None),
    ],
)
def test_feedback_loop_routes_by_outcome_to_its_repair_prompt(
    study: Study, first: str, outcome: str, detail: str | None
) -> None:
    problem = {**ADD, "limits": {"cpu": 0.5, "wall": 3.0}}
    rules = [{"last": "Write add", "turn": 0, "any": "has to|corrected|answer held", "reply": RIGHT}, {"reply": first}]
    _, run = study(rules, ["feedback_loop"], [problem])
    before, after = candidates(run)
    assert (before["outcome"], after["outcome"]) == (outcome, "passed")
    if detail:
        assert before["detail"] == detail
    assert f"repair_{outcome}" in nodes_of(run)
    assert last(run, "feedback")["template"] == f"default/{outcome}"
    assert last(run, "stop_reason") == "passed"
    assert last(run, "submitted") == {"path": "", "index": 1, "rule": "best_visible"}


def test_feedback_shows_the_failing_case_and_never_a_hidden_test(study: Study) -> None:
    _, run = study([{"reply": WRONG}], ["feedback_loop"])
    text = last(run, "feedback")["text"]
    assert "add(1, 2)" in text
    assert "-1" in text
    everything = str([row["data"] for row in rows(run)])
    assert "add(2, 2)" not in everything
    assert "add(-5" not in everything


@pytest.mark.parametrize(
    ("policy", "then", "stop"),
    [("keep", "repair_failed", "budget"), ("nudge", "repair_failed", "budget"), ("heat", "repair_failed", "budget"),
     ("restart", "restart", "budget"), ("stop", "submit", "repeat")],
)  # fmt: skip
def test_a_program_that_comes_back_is_noticed_and_the_setting_used_is_in_the_log(
    study: Study, policy: str, then: str, stop: str
) -> None:
    # Another layout and a comment: still the same program.
    again = WRONG.replace("return a - b", "return (a  -  b)  # sure")
    rules = [{"turn": 0, "reply": WRONG}, {"reply": again}]
    settings = {"repair_heat": "same", "on_repeat": policy, "history": "full", "iterations": 3}
    _, run = study(rules, [{"name": "feedback_loop", "settings": settings}])
    first, second = candidates(run)[:2]
    assert (first["same_program"], second["same_program"], second["same_failure"]) == (None, 0, 0)
    decided = [row for row in rows(run) if row["node"] == "decide"][1]
    assert decided["edge"] == then
    assert f"same program as candidate 0, on_repeat={policy}" in decided["reason"]
    assert last(run, "stop_reason") == stop
    if policy == "heat":
        assert last(run, "heat") == 0.8
    if policy == "nudge":
        assert "another way" in last(run, "feedback")["text"]


def test_resample_asks_the_same_prompt_again_warmer_and_draws_differ(study: Study) -> None:
    _, run = study([DRAWS], ["resample"], iterations=5)
    codes = [candidate["code"] for candidate in candidates(run)]
    # The first, cold draw and the warm ones are five draws with five seeds: none is another one warmer.
    assert len(set(codes)) == 5
    prompts = {row["data"]["update"]["messages"][0]["content"] for row in rows(run) if row["node"] == "generate"}
    assert len(prompts) == 1
    assert last(run, "heat") == 0.8


def test_a_control_that_cannot_vary_is_refused(study: Study) -> None:
    with pytest.raises(UserError, match=r"resample.*heat"):
        study([{"reply": WRONG}], [{"name": "resample", "settings": {"heat": 0.2}}])


def test_strategies_share_the_first_reply_of_a_sample_and_are_charged_for_it(study: Study) -> None:
    summary, run = study([{"reply": WRONG}], ["direct", "feedback_loop", "resample"], samples=2)
    assert summary.done == 6
    db = sqlite3.connect(run / "store.sqlite")
    used = [
        [use[1] for row in rows(run, attempt) for use in row["data"]["used"] if use[0] == "reply"]
        for attempt in range(1, 7)
    ]
    assert used[0][0] == used[1][0] == used[2][0] != used[3][0] == used[4][0] == used[5][0]
    # Three draws each of a loop that keeps failing; replies are shared, so fewer were called.
    assert [len(keys) for keys in used] == [1, 3, 3, 1, 3, 3]
    calls = db.execute("SELECT count(*), count(DISTINCT key) FROM calls WHERE kind='reply'").fetchone()
    assert calls == (len({key for keys in used for key in keys}),) * 2
    db.close()


def test_self_debug_asks_a_second_role_which_may_be_another_model(study: Study, tmp_path: Path) -> None:
    (tmp_path / "teacher.jsonl").write_text('{"reply": "It subtracts where it must add."}\n')
    rules = [{"any": "It subtracts where it must add", "reply": RIGHT}, {"reply": WRONG}]
    models = [
        {"name": f"scripted:{tmp_path / 'script.jsonl'}", "label": "script"},
        {"name": f"scripted:{tmp_path / 'teacher.jsonl'}", "label": "teacher"},
    ]
    strategy = {"name": "self_debug", "roles": {"explainer": "teacher"}}
    _, run = study(rules, [strategy], models=models)
    assert nodes_of(run)[4:8] == ["decide", "explain", "repair", "generate"]
    assert [one["outcome"] for one in candidates(run)] == ["failed", "passed"]
    roles = [use[2] for row in rows(run) for use in row["data"]["used"] if use[0] == "reply"]
    assert roles == ["solver", "explainer", "solver"]


def test_reflexion_carries_the_latest_reflections_into_fresh_prompts(study: Study) -> None:
    rules = [
        {"any": "without code", "reply": "Note: use plus."},
        {"any": "use plus", "reply": OTHER_WRONG},
        {"reply": WRONG},
    ]
    _, run = study(rules, [{"name": "reflexion", "settings": {"memory": 1}}])
    assert last(run, "memory") == ["Note: use plus."]
    retry = [row for row in rows(run) if row["node"] == "retry"][-1]["data"]["update"]["messages"]
    assert len(retry) == 1
    assert "use plus" in retry[0]["content"]
    assert "a - b" not in retry[0]["content"]


def test_fresh_start_restarts_the_inner_loop_inside_one_budget(study: Study, tmp_path: Path) -> None:
    settings = {"turn": 2, "iterations": 4, "inner": "feedback_loop"}
    rules = [{"any": "it is wrong", "reply": fenced("return a * b + {seed}"), "template": True}, DRAWS]
    models = [{"name": f"scripted:{tmp_path / 'script.jsonl'}", "label": "script", "temperature": 0.8}]
    _, run = study(rules, [{"name": "fresh_start", "settings": settings}], models=models)
    assert [one["index"] for one in candidates(run)] == [0, 1, 2, 3]
    outer = [node for node in nodes_of(run) if "/" not in node]
    assert outer == ["loop", "decide", "reset", "loop", "decide", "submit"]
    assert last(run, "stop_reason") == "budget"
    starts = [one["code"] for one in candidates(run)][::2]
    assert starts[0] != starts[1]
    assert all("a - b" in code for code in starts)


def test_best_of_n_is_the_same_journal_and_result_whatever_branch_ends_first(study: Study) -> None:
    strategy = {"name": "best_of_n", "settings": {"iterations": 5}}
    replies = [WRONG, RIGHT, CRASH, OTHER_WRONG, SYNTAX, fenced("return b + a")]
    seen = []
    for number, (delay, jobs) in enumerate([([0.0, 0.2], 1), ([0.0, 0.2], 4), (0.0, 4)]):
        _, run = study([{"replies": replies, "delay": delay}], [strategy], [ADD], f"run{number}", jobs=jobs)
        log = [[row[key] for key in ("path", "step", "node", "edge", "reason")] for row in rows(run)]
        programs = [(one["path"], one["code"], one["outcome"], one["execution"]) for one in candidates(run)]
        db = sqlite3.connect(run / "store.sqlite")
        keys = sorted(db.execute("SELECT key FROM journal").fetchall())
        db.close()
        seen.append((log, programs, last(run, "submitted"), keys))
    assert seen[0] == seen[1]
    # Another script is another model identity, so other reply keys; everything else is the same.
    assert seen[1][:3] == seen[2][:3]
    passing = [path for path, _, outcome, _ in seen[0][1] if outcome == "passed"]
    assert passing == [] or seen[0][2]["path"] == passing[0]


def test_branch_n_draws_what_resample_draws_as_its_nth_sample(study: Study) -> None:
    strategies = [{"name": "best_of_n", "settings": {"heat": 0.8}}, {"name": "resample", "settings": {"heat": 0.8}}]
    _, run = study([DRAWS], strategies)
    branches, resampled = candidates(run, 1), candidates(run, 2)
    # The resample loop's first draw is the cold one that strategies share; its warm draws are the branches' draws 1, 2.
    assert [one["code"] for one in branches[1:]] == [one["code"] for one in resampled[1:]]


@pytest.mark.parametrize("style", ["probe", "codeassay"])
def test_presets(study: Study, style: str) -> None:
    reply = "[code]\ndef add(a, b):\n    return a - b\n[/code]" if style == "probe" else WRONG
    strategies = [{"name": "feedback_loop", "settings": {"style": style}}]
    _, run = study([{"reply": reply}], strategies)
    found = candidates(run)
    assert len(found) == {"probe": 3, "codeassay": 2}[style]
    assert last(run, "submitted")["index"] == {"probe": 2, "codeassay": 1}[style]
    text = last(run, "feedback")["text"]
    assert ("add(1, 2)" in text) == (style == "codeassay")
    messages = [row for row in rows(run) if row["node"] == "generate"][-1]["data"]["update"]["messages"]
    assert len(messages) == {"probe": 6, "codeassay": 2}[style]


def test_a_problem_without_visible_tests_is_never_a_vacuous_pass(study: Study) -> None:
    problem = {**SQUARE, "visible": []}
    reply = fenced("return a * a", "def square(a):")
    _, run = study([{"reply": reply}], ["feedback_loop", "resample"], [problem])
    for attempt in (1, 2):
        (only,) = candidates(run, attempt)
        assert only["outcome"] != "passed"
        assert only["total"] == 0
        assert last(run, "stop_reason", attempt) == "no_visible_suite"
    db = sqlite3.connect(run / "store.sqlite")
    assert db.execute("SELECT outcome, passed, total FROM grades").fetchall() == [("passed", 1, 1)] * 2
    db.close()


def test_a_strategy_by_path_is_one_file_without_an_edit_elsewhere(study: Study, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "graphs" / "direct.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace('"submit"', '"hand_in"'))
    _, run = study([{"reply": RIGHT}], [str(tmp_path / "mine.py")])
    assert nodes_of(run)[-1] == "hand_in"
    assert (run / "catalog" / "graphs" / "mine.py").read_text() == (tmp_path / "mine.py").read_text()
