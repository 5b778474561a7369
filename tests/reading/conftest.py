"""A run's store filled through the writer's public methods: what a runner would write, with values chosen by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from agentloop.hashing import digest, text_digest
from agentloop.store import Store
from agentloop.types import Problem, Reply, Suite, SuiteVerdict, Test, TestVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Made:
    """One candidate of an attempt: its program, outcomes, and what the reply took."""

    code: str | None
    visible: str
    hidden: str
    passed: int = 0
    prompt: int = 100
    completion: int = 20
    told: bool = False
    cost: float | None = None
    explained: int = 0
    """Tokens of an explaining reply (role explainer) before this candidate, 0 for none."""


@dataclass
class Run:
    """A store with a manifest, filled attempt by attempt."""

    store: Store
    directory: Path
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)

    def problem(self, name: str, visible: int = 2, hidden: int = 3) -> None:
        """A problem with so many tests."""

        def tests(suite: str, count: int) -> tuple[Test, ...]:
            return tuple(
                Test(
                    f"{suite}-{i}",
                    "call",
                    {"function": "f", "args": [i], "kwargs": {}},
                    {"value": i},
                    "equal",
                    f"f({i})",
                )
                for i in range(count)
            )

        problem = Problem(
            id=name,
            workload="toy",
            statement=f"Write f for {name}. " + "It returns its argument. " * 8,
            interface="function",
            visible=Suite("visible", tests("v", visible)),
            hidden=Suite("hidden", tests("h", hidden)),
            entry_point="f",
        )
        self.problems[name] = problem
        self.rows.update(self.store.add_problems([problem], [digest(name)]))

    def attempt(
        self,
        problem: str,
        strategy: str,
        made: list[Made],
        *,
        model: str = "m",
        sample: int = 0,
        stop: str = "budget",
        submitted: int | None = None,
        status: str = "done",
        in_process: bool = False,
    ) -> int:
        """An attempt on the trunk. Equal prompts of one problem and sample are one reply, as in a real journal."""
        row = self.rows["toy", problem]
        size = self.problems[problem]
        attempt = self.store.attempt(row, model, strategy, sample)[0]
        rows: list[tuple[str, dict[str, Any], list[list[str]], str]] = []
        codes: list[str | None] = []
        for index, one in enumerate(made):
            text = f"{strategy} {index} {one.prompt}" if index else "first"
            prompt = f"{problem} {text}"
            told = {"text": f"It fails {index}.", "template": "default/failed", "author": "template", "tests": ["v-0"]}
            if one.explained:
                key = self.reply(f"{prompt} explain", sample, one.explained, 0, "because", None)
                rows.append(
                    (
                        "explain",
                        {"feedback": {**told, "author": "explainer", "text": "because"}},
                        [["reply", key, "explainer"]],
                        "repair",
                    )
                )
            if one.told:
                told = {
                    "text": f"It fails {index}.",
                    "template": "default/failed",
                    "author": "template",
                    "tests": ["v-0"],
                }
                rows.append(("repair_failed", {"feedback": told, "messages": [user(prompt)]}, [], "generate"))
            else:
                rows.append(("task", {"messages": [user(prompt)]}, [], "generate"))
            reply = f"Here it is:\n```python\n{one.code}\n```\n" if one.code is not None else "I cannot."
            key = self.reply(prompt, sample, one.prompt, one.completion, reply, one.cost)
            rows.append(("generate", {"reply": reply, "finish_reason": "stop"}, [["reply", key, "solver"]], "extract"))
            same = codes.index(one.code) if one.code in codes and one.code is not None else None
            codes.append(one.code)
            total = len(size.visible.tests)
            failing = one.code is not None and one.visible != "passed"
            failure = {"test": "v-0", "show": "assert f(0) == 0", "got": "1", "expected": "0"} if failing else None
            candidate = {
                "index": index, "path": "", "code": one.code, "rule": "fence", "added": [], "outcome": one.visible,
                "detail": "ValueError" if one.visible == "runtime_error" else "",
                "passed": total if one.visible == "passed" else one.passed,
                "total": total, "report": "", "signature": one.visible, "ast": text_digest(one.code or ""),
                "failure": failure,
                "same_program": same, "same_failure": same, "execution": None,
            }  # fmt: skip
            rows.append(("run", {"candidates": [candidate]}, [], "decide"))
            rows.append(("decide", {"decision": {"go": "on", "reason": f"{one.visible}, candidate {index}"}}, [], "on"))
            if status == "done" and size.hidden.tests:
                tests = tuple(
                    TestVerdict(test.id, one.hidden, "", "1", "0", "in_process" if in_process else "separate")  # type: ignore[arg-type]
                    for test in size.hidden.tests
                )
                of = len(tests)
                verdict = SuiteVerdict("hidden", one.hidden, "", of if one.hidden == "passed" else 1, of, tests)  # type: ignore[arg-type]
                self.store.add_grade(attempt, "", index, verdict, "")
        if status == "done":
            chosen = len(made) - 1 if submitted is None else submitted
            end = {"path": "", "index": chosen, "rule": "best_visible"} if made else None
            rows.append(("submit", {"submitted": end, "stop_reason": stop}, [], "END"))
        for step, (node, update, used, edge) in enumerate(rows):
            reason = update["decision"]["reason"] if "decision" in update else ""
            self.store.add_transition(
                attempt,
                {
                    "path": "", "step": step, "node": node, "edge": edge, "reason": reason,
                    "data": {"update": update, "used": used}, "at": float(step), "seconds": 0.5,
                },
            )  # fmt: skip
        self.store.set_status(attempt, status, new_try=True)
        return attempt

    def reply(self, prompt: str, sample: int, tokens: int, completion: int, text: str, cost: float | None) -> str:
        """A reply in the journal, once for each (prompt, sample)."""
        key = digest([prompt, sample])
        if self.store.recorded(key) is None:
            request = {
                "messages": [user(prompt)], "params": {"temperature": 0.0}, "seed": 7, "problem": "toy",
                "sample": sample, "occurrence": "0",
            }  # fmt: skip
            reply = Reply(text, "stop", tokens, completion, 0.25, cost)
            self.store.begin_call(key, "reply")
            self.store.record(key, "reply", {"request": request, "reply": asdict(reply)})
        return key


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def manifest(**strategies: str) -> dict[str, Any]:
    """A manifest with these strategies, label -> name of its file."""
    return {
        "agentloop": "0.1.0",
        "created": "2026-01-02T03:04:05+00:00",
        "name": "toy",
        "seed": 0,
        "workload": {"name": "toy"},
        "strategies": {
            label: {
                "name": name, "digest": "", "settings": {}, "roles": {}, "oracle": name.startswith("oracle"),
                "files": {"template:default/failed": "0" * 64},
            }
            for label, name in strategies.items()
        },
        "models": {"m": {"name": "m", "params": {"temperature": 0.0}, "identity": {}}},
        "environment": {
            "backend": "local", "isolation": "namespaces, no network", "toolchain": {}, "host": "",
            "recipe": "", "protocol": 1,
        },
        "environment_id": "0" * 64,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """An empty run whose writer is still at work while the test reads it."""
    store = Store.open(tmp_path / "run")
    store.set_meta("manifest", manifest(feedback_loop="feedback_loop", resample="resample", direct="direct"))
    yield Run(store, tmp_path / "run")
    store.close()
