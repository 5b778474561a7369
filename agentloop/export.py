"""A run as JSON lines, one a transition with everything inlined: prompts, replies, evidence, hidden grades at the end.

For other tools and for keeping; the store itself is smaller, since it keeps each text once.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentloop.state import place_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentloop.reader import Reading


def export(run: Reading) -> Iterator[dict[str, Any]]:
    """The rows of a run in order of attempt, step and branch.

    "kind" is "run" (the manifest, once), "transition" (with "asked": the requests and replies it used, and "executed":
    the evidence) or "grades" (the hidden verdicts of an attempt's candidates).
    """
    yield {"kind": "run", "manifest": run.manifest}
    for attempt in run.attempts():
        who = {
            "attempt": attempt.id, "workload": attempt.workload, "problem": attempt.problem, "model": attempt.model,
            "strategy": attempt.strategy, "sample": attempt.sample,
        }  # fmt: skip
        for row in run.transitions(attempt.id):
            used = [(use[0], {"key": use[1], **(run.record(use[1]) or {})}) for use in row["data"]["used"]]
            yield {
                "kind": "transition",
                **who,
                **{key: row[key] for key in ("path", "step", "node", "edge", "reason", "at", "seconds")},
                "update": row["data"]["update"],
                "asked": [record for kind, record in used if kind == "reply"],
                "executed": [record for kind, record in used if kind == "execution"],
            }
        grades = [
            {"path": path, "candidate": index, **asdict(grade)}
            for (path, index), grade in sorted(run.grades(attempt.id).items(), key=lambda item: place_order(item[0]))
        ]
        yield {"kind": "grades", **who, "status": attempt.status, "hidden": grades}
