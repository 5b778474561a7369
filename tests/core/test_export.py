"""The export holds everything, and the store is smaller than it."""

from __future__ import annotations

from .conftest import Study, fenced


def test_every_transition_is_exported_with_its_prompt_reply_and_evidence(study: Study) -> None:
    from agentloop.export import export
    from agentloop.reader import open_run

    wrong, right = fenced("return a - b"), fenced("return a + b")
    _, run = study([{"any": "it is wrong", "reply": right}, {"reply": wrong}], ["feedback_loop"])
    with open_run(run) as reading:
        rows = list(export(reading))
        stored = len(reading.transitions(1))
    assert [row["kind"] for row in rows] == ["run"] + ["transition"] * stored + ["grades"]
    asked = [record for row in rows for record in row.get("asked", [])]
    assert [record["reply"]["text"] for record in asked] == [wrong, right]
    assert "add(1, 2)" in asked[1]["request"]["messages"][0]["content"]
    executed = [record for row in rows for record in row.get("executed", [])]
    assert [len(record["tests"]) for record in executed] == [2, 2]
    assert [grade["outcome"] for grade in rows[-1]["hidden"]] == ["failed", "passed"]
