"""The numbers of a run, derived from its store alone: one row for each model and strategy.

Every count has its denominator beside it. Attempts that are not done (still running, or ended by a fault) are counted
apart and enter no rate. Two runs with the same journal give the same data, except under "run".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from typing import TYPE_CHECKING, Any

from agentloop.state import best_visible
from agentloop.types import NO_VISIBLE_SUITE, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentloop.reader import Attempt, Charge, Grade, Outline, Place, Reading, Sizes, Step

CONTROL = "resample"
"""Name of the strategy that every other is compared with at equal tokens."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One candidate of the control: what the attempt had been charged up to it, and its verdicts."""

    tokens: int
    rank: tuple[bool, int, bool]
    """See `agentloop.state.best_visible`."""
    hidden: bool | None


Draws = dict[tuple[str, int, int], list[Draw]]
"""The control's candidates by (model, problem row, sample)."""


@dataclass
class _Money:
    prompt: int = 0
    completion: int = 0
    replies: int = 0
    unpriced: int = 0
    costs: list[float] = field(default_factory=list)

    def add(self, charge: Charge) -> None:
        self.prompt += charge.prompt
        self.completion += charge.completion
        self.replies += 1
        self.unpriced += charge.cost is None
        if charge.cost:
            self.costs.append(charge.cost)

    def data(self) -> dict[str, Any]:
        return {
            "replies": self.replies,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "tokens": self.prompt + self.completion,
            # fsum: the sum does not depend on the order of attempts. Unknown prices are no price of 0.
            "cost": fsum(self.costs) if self.unpriced < self.replies else None,
            "unpriced_replies": self.unpriced,
        }


@dataclass
class _Row:
    """Counts of one model and strategy. `count` keys are dotted paths of the result."""

    count: Counter[str] = field(default_factory=Counter)
    charged: _Money = field(default_factory=_Money)
    paid: _Money = field(default_factory=_Money)
    roles: dict[str, _Money] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    stops: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    def visible(self, outline: Outline, sizes: Sizes) -> None:
        """Outcomes on the visible suite; a problem without one has none."""
        final = final_step(outline)
        for when, step in (("initial", outline.steps[0] if outline.steps else None), ("final", final)):
            outcome = NO_VISIBLE_SUITE if not sizes.visible else step.outcome if step else "no_code"
            self.outcomes.setdefault(f"visible.{when}", Counter())[outcome] += 1
            self.count[f"visible.{when}"] += outcome == "passed"
        if sizes.visible:
            self.count["visible.of"] += 1
            self.count["visible.any"] += any(step.outcome == "passed" for step in outline.steps)

    def hidden(self, outline: Outline, sizes: Sizes, grades: dict[Place, Grade]) -> None:
        """Verdicts of the grader on initial and submitted candidate, and what lies between them."""
        if not sizes.hidden:
            self.count["hidden.without_suite"] += 1
            return
        places = [(step.path, step.index) for step in outline.steps]
        if any(place not in grades for place in places):
            self.count["hidden.ungraded"] += 1
            return
        initial = grades[places[0]] if places else None
        final = grades[outline.submitted] if outline.submitted else None
        before, after = bool(initial and initial.outcome == "passed"), bool(final and final.outcome == "passed")
        for when, grade in (("initial", initial), ("final", final)):
            self.outcomes.setdefault(f"hidden.{when}", Counter())[grade.outcome if grade else "no_code"] += 1
        self.count["hidden.of"] += 1
        self.count["hidden.initial"] += before
        self.count["hidden.final"] += after
        self.count["hidden.any"] += any(grades[place].outcome == "passed" for place in places)
        self.count["hidden.gained"] += after and not before
        self.count["hidden.lost"] += before and not after
        self.count["hidden.in_process"] += bool(final and final.in_process)
        step = final_step(outline)
        if sizes.visible and step and step.outcome == "passed":
            self.count["gap.visible_passed"] += 1
            self.count["gap.hidden_failed"] += not after

    def loop(self, outline: Outline) -> None:
        """Iterations, repeats and stop reason."""
        self.count["iterations"] += len(outline.steps)
        self.stops[outline.stop_reason or "none"] += 1
        for step in outline.steps:
            if step.index == 0:
                continue
            kind = "repairs" if step.told else "redraws"
            self.count[f"{kind}.of"] += 1
            self.count[f"{kind}.same_program"] += step.same_program
            self.count[f"{kind}.same_failure"] += step.same_failure

    def money(self, reading: Reading, outline: Outline, seen: set[bytes]) -> int:
        """Charged for every reply used; paid by the first row that used it. The attempt's charged tokens."""
        tokens = 0
        for use in outline.uses:
            if use.kind != "reply":
                continue
            charge = reading.charge(use.key)
            self.charged.add(charge)
            self.roles.setdefault(use.role, _Money()).add(charge)
            self.seconds.append(charge.seconds)
            tokens += charge.prompt + charge.completion
            key = bytes.fromhex(use.key)
            if key not in seen:
                seen.add(key)
                self.paid.add(charge)
        return tokens


def report(reading: Reading) -> dict[str, Any]:
    """The run's numbers as plain data with stable keys. Raises `UserError` where the store is damaged."""
    sizes = reading.sizes()
    strategies = reading.manifest["strategies"]
    control = next((name for name, entry in sorted(strategies.items()) if entry["name"] == CONTROL), None)
    draws = _draws(reading, control) if control else {}
    seen: set[bytes] = set()
    rows = [
        _row(reading, model, strategy, attempts, sizes, (control, draws), seen)
        for (model, strategy), attempts in groupby(reading.attempts(), key=lambda item: (item.model, item.strategy))
    ]
    everything = _Money()
    for charge in reading.paid():
        everything.add(charge)
    return {
        "run": {
            "directory": str(reading.directory),
            "name": reading.manifest["name"],
            "created": reading.manifest["created"],
            "agentloop": reading.manifest["agentloop"],
            "faults": dict(sorted(Counter(fault["kind"] for fault in reading.faults()).items())),
        },
        "experiment": {
            "workload": reading.manifest["workload"]["name"],
            "problems": len(sizes),
            "problems_without_visible_suite": sum(not size.visible for size in sizes.values()),
            "problems_without_hidden_suite": sum(not size.hidden for size in sizes.values()),
            "seed": reading.manifest["seed"],
            "environment": reading.manifest["environment"],
            "models": {name: entry["params"] for name, entry in sorted(reading.manifest["models"].items())},
        },
        "rows": rows,
        "paid": everything.data(),
    }


def _row(
    reading: Reading,
    model: str,
    strategy: str,
    attempts: Iterable[Attempt],
    sizes: dict[int, Sizes],
    control: tuple[str | None, Draws],
    seen: set[bytes],
) -> dict[str, Any]:
    row, against = _Row(), Counter[str]()
    status, cancelled = Counter[str](), reading.cancelled()
    for attempt in attempts:
        stopped = attempt.status == "fault" and attempt.id in cancelled
        status["stopped" if stopped else attempt.status] += 1
        if attempt.status != "done":
            continue
        outline, grades = reading.outline(attempt.id), reading.grades(attempt.id)
        row.visible(outline, sizes[attempt.row])
        row.hidden(outline, sizes[attempt.row], grades)
        row.loop(outline)
        tokens = row.money(reading, outline, seen)
        if control[0] not in (None, strategy):
            final = grades.get(outline.submitted) if outline.submitted else None
            hidden = bool(final and final.outcome == "passed") if sizes[attempt.row].hidden else None
            _compare(against, control[1].get((model, attempt.row, attempt.sample)), tokens, hidden)
    entry = reading.manifest["strategies"][strategy]
    count, done = row.count, status["done"]
    return {
        "model": model,
        "strategy": strategy,
        "file": entry["name"],
        "oracle": entry["oracle"],
        "attempts": {
            "begun": status.total(),
            "done": done,
            "faults": status["fault"],
            "unfinished": status.total() - done - status["fault"],
        },
        "visible": {key: count[f"visible.{key}"] for key in ("of", "initial", "final", "any")},
        "hidden": {
            key: count[f"hidden.{key}"]
            for key in ("of", "initial", "final", "any", "gained", "lost", "in_process", "ungraded", "without_suite")
        },
        "visible_passed_hidden_failed": {"of": count["gap.visible_passed"], "count": count["gap.hidden_failed"]},
        "outcomes": {
            suite: {when: _outcomes(row.outcomes.get(f"{suite}.{when}", Counter())) for when in ("initial", "final")}
            for suite in ("visible", "hidden")
        },
        "iterations": {"total": count["iterations"], "mean": round(count["iterations"] / done, 4) if done else None},
        "repairs": {key: count[f"repairs.{key}"] for key in ("of", "same_program", "same_failure")},
        "redraws": {key: count[f"redraws.{key}"] for key in ("of", "same_program", "same_failure")},
        "stop_reasons": dict(sorted(row.stops.items())),
        "charged": row.charged.data(),
        "charged_by_role": {role: money.data() for role, money in sorted(row.roles.items())},
        "paid": row.paid.data(),
        "model_seconds": round(fsum(row.seconds), 3),
        "control_at_equal_tokens": {"strategy": control[0], **_against(against)} if against["of"] else None,
    }


def final_step(outline: Outline) -> Step | None:
    """The submitted candidate."""
    return next((step for step in outline.steps if (step.path, step.index) == outline.submitted), None)


def _draws(reading: Reading, label: str) -> Draws:
    draws: Draws = {}
    for attempt in reading.attempts("a.strategy=? AND a.status='done'", (label,)):
        outline, grades, tokens = reading.outline(attempt.id), reading.grades(attempt.id), 0
        found = draws[attempt.model, attempt.row, attempt.sample] = []
        for step in outline.steps:
            charges = [reading.charge(use.key) for use in step.uses if use.kind == "reply"]
            tokens += sum(charge.prompt + charge.completion for charge in charges)
            grade = grades.get((step.path, step.index))
            rank = (step.outcome == "passed", step.passed, step.program)
            found.append(Draw(tokens, rank, grade.outcome == "passed" if grade else None))
    return draws


def _compare(against: Counter[str], draws: list[Draw] | None, tokens: int, hidden: bool | None) -> None:
    """Cut the control's draws at the tokens that the strategy's attempt was charged, and submit from what is left."""
    if not draws or hidden is None:
        against["without_pair"] += 1
        return
    cut = [draws[0], *(draw for draw in draws[1:] if draw.tokens <= tokens)]
    chosen = cut[best_visible([draw.rank for draw in cut])]
    against["of"] += 1
    against["hidden"] += bool(chosen.hidden)
    against["visible"] += chosen.rank[0]
    against["strategy_hidden"] += hidden
    against["tokens"] += cut[-1].tokens
    against["strategy_tokens"] += tokens
    # It might have had more draws for these tokens: its own budget ended before.
    against["ended_below"] += len(cut) == len(draws) and not chosen.rank[0] and cut[-1].tokens < tokens


def _against(count: Counter[str]) -> dict[str, int]:
    keys = ("of", "hidden", "strategy_hidden", "visible", "tokens", "strategy_tokens", "ended_below", "without_pair")
    return {key: count[key] for key in keys}


def _outcomes(count: Counter[str]) -> dict[str, int]:
    return {
        outcome: count[outcome] for outcome in (*OUTCOMES, NO_VISIBLE_SUITE) if count[outcome] or outcome == "passed"
    }
