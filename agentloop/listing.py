"""`agentloop list DIR`: one line for each attempt, streamed; and how an attempt is found by a name."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from agentloop.errors import UserError, unknown_name, unmatched
from agentloop.types import NO_VISIBLE_SUITE, OUTCOMES, STOP_REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentloop.reader import Attempt, Reading


@dataclass(frozen=True)
class Filter:
    """Which attempts are listed. Empty fields let everything through."""

    strategy: str = ""
    model: str = ""
    problem: str = ""
    outcome: str = ""
    """An outcome of the submitted program on the visible suite, or `hidden:OUTCOME`."""
    fault: bool = False
    """Only attempts that had a fault."""


def listed(reading: Reading, chosen: Filter) -> Iterator[dict[str, Any]]:
    """Attempts as plain data, in the order of the report. Raises `UserError` for unknown names, before the first."""
    suite, _, outcome = chosen.outcome.rpartition(":")
    if chosen.strategy and chosen.strategy not in reading.manifest["strategies"]:
        raise unknown_name("strategy of this run", chosen.strategy, reading.manifest["strategies"])
    if chosen.model and chosen.model not in reading.manifest["models"]:
        raise unknown_name("model of this run", chosen.model, reading.manifest["models"])
    if outcome and outcome not in OUTCOMES:
        raise unknown_name("outcome", outcome, OUTCOMES)
    if suite not in ("", "visible", "hidden"):
        raise unknown_name("suite", suite, ("visible", "hidden"))
    wanted = {"a.strategy": chosen.strategy, "a.model": chosen.model}
    terms = [f"{column}=?" for column, value in wanted.items() if value]
    values = tuple(value for value in wanted.values() if value)
    names = reading.problem_names()
    problems = {name for name in names if chosen.problem in ("", name) or fnmatchcase(name, chosen.problem)}
    if names and not problems:
        raise unmatched(chosen.problem, names)
    if chosen.fault:
        terms.append("a.id IN (SELECT attempt FROM faults)")
    attempts = reading.attempts(" AND ".join(terms) or "1", values)
    entries = (_entry(reading, attempt) for attempt in attempts if attempt.problem in problems)
    which = "hidden" if suite == "hidden" else "visible"
    return (entry for entry in entries if not outcome or entry["final"][which] == outcome)


def lines(reading: Reading, chosen: Filter) -> Iterator[str]:
    """The same as aligned text. Model and sample have a column where the run has more than one of them."""
    entries = listed(reading, chosen)
    span = reading.span()
    columns = {
        "id": ("id", [str(span.id)]),
        "problem": ("problem", reading.problem_names()),
        "strategy": ("strategy", list(reading.manifest["strategies"])),
        "model": ("model", list(reading.manifest["models"])),
        "sample": ("sample", []),
        "hidden": ("hidden suite\nfirst>final", [f"{outcome}>{outcome}" for outcome in span.hidden]),
        "why": ("why it ended", list(STOP_REASONS.values())),
        "visible": ("visible suite\nprogram by program", []),
    }
    if len(reading.manifest["models"]) == 1:
        del columns["model"]
    if not span.sample:
        del columns["sample"]
    widths = tuple(max(map(len, (*head.split("\n"), *texts))) for head, texts in columns.values())
    heads = [head.rpartition("\n") for head, _ in columns.values()]  # what is one line stands right over its column
    yield _line([upper for upper, _, _ in heads], widths)
    yield _line([lower for _, _, lower in heads], widths)
    count = 0
    for count, entry in enumerate(entries, 1):  # noqa: B007
        yield _line([_cell(key, entry) for key in columns], widths)
    if not count:
        yield "no attempt has begun" if chosen == Filter() else "no attempt is like that"


def _cell(key: str, entry: dict[str, Any]) -> str:
    if key == "hidden":
        return ">".join(filter(None, (entry["first"]["hidden"], entry["final"]["hidden"]))) or "-"
    if key == "visible":
        # A fault that a later try made good is worth a word: the attempt is done all the same.
        tries = f"  ({entry['tries']} tries)" if entry["tries"] > 1 else ""
        return (">".join(entry["visible"]) or "-") + tries
    if key != "why":
        return str(entry[key])
    if entry["status"] != "done":
        return str(entry["fault"] if entry["status"] == "fault" else entry["status"])
    return str(STOP_REASONS.get(entry["stop_reason"], entry["stop_reason"]))


def find_attempt(reading: Reading, spec: str) -> Attempt:
    """The attempt of an id, or of PROBLEM[:STRATEGY[:MODEL[:SAMPLE]]] where that is one. Raises `UserError`."""
    if spec.isdigit():
        for attempt in reading.attempts("a.id=?", (int(spec),)):
            return attempt
    # Names may hold colons (scripted:FILE), so whole names are compared, never parts of the text.
    fields = ("p.problem", "a.strategy", "a.model", "a.sample")
    names = [" || ':' || ".join(fields[: count + 1]) for count in range(len(fields))]
    found = list(reading.attempts(f"? IN ({', '.join(names)})", (spec,)))
    if len(found) == 1:
        return found[0]
    if found:
        some = "; ".join(f"{one.id} ({one.strategy}, {one.model}, sample {one.sample})" for one in found[:4])
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise UserError(f"{spec} is {len(found)} attempts: {some}{more}; give an id, or add :STRATEGY[:MODEL[:SAMPLE]]")
    problems = reading.problem_names()
    problem = spec.partition(":")[0]
    if spec.isdigit() or problem in problems:
        raise UserError(f"{reading.directory} has no attempt {spec}; `agentloop list {reading.directory}` shows them")
    near = get_close_matches(problem, problems, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    shown = f"`agentloop list {reading.directory}` shows all {len(problems)}"
    raise UserError(f"{reading.directory} has no problem {problem!r}: {hint}{shown}")


def _entry(reading: Reading, attempt: Attempt) -> dict[str, Any]:
    outline, grades = reading.outline(attempt.id), reading.grades(attempt.id)
    places = [(step.path, step.index) for step in outline.steps]
    verdicts = {place: grades[place].outcome if place in grades else "" for place in places}
    visible = [step.outcome if step.total or not step.program else NO_VISIBLE_SUITE for step in outline.steps]
    chosen = places.index(outline.submitted) if outline.submitted in places else None
    faults = reading.faults(attempt.id)
    return {
        "id": attempt.id,
        "problem": attempt.problem,
        "strategy": attempt.strategy,
        "model": attempt.model,
        "sample": attempt.sample,
        "status": attempt.status,
        "tries": attempt.tries,
        "visible": visible,
        "hidden": list(verdicts.values()),
        "first": {"visible": visible[0] if visible else "", "hidden": verdicts[places[0]] if places else ""},
        "final": {
            "visible": visible[chosen] if chosen is not None else "",
            "hidden": verdicts[places[chosen]] if chosen is not None else "",
        },
        "submitted": chosen,
        "stop_reason": outline.stop_reason,
        "fault": faults[-1]["kind"] if faults else "",
    }


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if number else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
