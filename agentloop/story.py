"""The story of one attempt: prompts, replies, programs, diffs, outcomes, feedback, reasons, verdicts, as they came.

`story` gives it as plain data (`show --json`), `tell` as text. Nothing is left out of the data; the text cuts long
parts unless it is asked for all of them.
"""

from __future__ import annotations

from dataclasses import asdict
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from agentloop.state import branch_order
from agentloop.types import STOP_REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentloop.reader import Attempt, Reading

CUT = 24
"""Lines of a long text that are shown without --full: from its head and its tail."""
DIFF = 60
"""Lines of a diff that are shown without --full."""
MARGIN = "    | "

Event = dict[str, Any]


def story(reading: Reading, attempt: Attempt) -> dict[str, Any]:
    """An attempt as plain data: who, events in order, submitted candidate, tokens. Raises `UserError` (damaged)."""
    problem = reading.problem(attempt.row)
    outline = reading.outline(attempt.id)
    events = [event for row in _in_order(reading.transitions(attempt.id)) for event in _events(reading, row)]
    _repeats(events)
    _programs(reading, attempt, problem, events)
    _feedback(events)
    charges = [reading.charge(use.key) for use in outline.uses if use.kind == "reply"]
    who = ("id", "problem", "workload", "strategy", "model", "sample", "status", "tries")
    return {
        "attempt": {key: getattr(attempt, key) for key in who},
        "statement": problem["statement"],
        "notes": list(problem["notes"]),
        "suites": {name: len(problem[name]["tests"]) for name in ("visible", "hidden")},
        "events": events,
        "submitted": {"path": outline.submitted[0], "index": outline.submitted[1]} if outline.submitted else None,
        "stop_reason": outline.stop_reason,
        "faults": [{key: fault[key] for key in ("try", "kind", "message")} for fault in reading.faults(attempt.id)],
        "charged": {
            "replies": len(charges),
            "prompt_tokens": sum(charge.prompt for charge in charges),
            "completion_tokens": sum(charge.completion for charge in charges),
        },
    }


def _programs(reading: Reading, attempt: Attempt, problem: dict[str, Any], events: list[Event]) -> None:
    """Give each program its hidden verdict, and its difference from the program before it on its branch."""
    grades = reading.grades(attempt.id)
    shows = {test["id"]: test["show"] for test in problem["hidden"]["tests"]}
    seen: dict[str, tuple[str, str]] = {}
    for event in events:
        if event["kind"] != "program":
            continue
        candidate, path = event["candidate"], event["path"]
        place = (path, candidate["index"])
        event["hidden"] = None
        if place in grades:
            tests = reading.grade_tests(attempt.id, place)
            failing = next((test for test in tests if test["outcome"] != "passed"), None)
            event["hidden"] = {**asdict(grades[place]), "failing": failing}
            if failing:
                failing["show"] = shows.get(failing["test"], failing["test"])
        name, code, before = f"candidate {candidate['index']}", candidate["code"], seen.get(path)
        event["diff"] = None
        if code and before:
            lines = unified_diff(before[1].splitlines(), code.splitlines(), before[0], name, lineterm="")
            event["diff"] = list(lines)
        if code:
            seen[path] = (name, code)


def _feedback(events: list[Event]) -> None:
    """Note which feedback stands word for word in the prompt that follows it."""
    for number, event in enumerate(events):
        if event["kind"] == "feedback":
            following = (later for later in events[number:] if later["kind"] == "prompt")
            prompt = next((later for later in following if later["path"] == event["path"]), None)
            event["in_prompt"] = prompt is not None and event["text"].strip() in prompt["messages"][-1]["content"]


def _in_order(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The trunk's transitions, each branch whole before the trunk's step that came after it."""
    branches: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        branches.setdefault(row["path"], []).append(row)
    trunk = branches.pop("", [])
    waiting = sorted(branches.items(), key=lambda item: branch_order(item[0]))
    for row in trunk:
        for path, inner in list(waiting):
            if inner[0]["at"] < row["at"]:
                yield from inner
                waiting.remove((path, inner))
        yield row
    for _, inner in waiting:
        yield from inner


def _events(reading: Reading, row: dict[str, Any]) -> Iterator[Event]:
    update = row["data"]["update"]
    place = {"node": row["node"], "path": row["path"], "step": row["step"]}
    for kind, key, role in row["data"]["used"]:
        record = reading.record(key) if kind == "reply" else None
        if record:
            yield {"kind": "prompt", **place, "role": role, **record["request"]}
            yield {"kind": "reply", **place, "role": role, **record["reply"]}
    if update.get("extraction", {}).get("added"):
        yield {"kind": "added", **place, "added": update["extraction"]["added"]}
    for candidate in update.get("candidates", []):
        yield {"kind": "program", **place, "path": candidate["path"], "candidate": candidate}
    if "feedback" in update:
        yield {"kind": "feedback", **place, **update["feedback"]}
    if "decision" in update:
        yield {"kind": "decision", **place, "go": update["decision"]["go"], "reason": row["reason"]}


def _repeats(events: list[Event]) -> None:
    """Drop the candidates that a node around an inner graph says again."""
    seen: set[tuple[str, int]] = set()
    for event in list(events):
        if event["kind"] == "program":
            key = (event["path"], event["candidate"]["index"])
            if key in seen:
                events.remove(event)
            seen.add(key)


def tell(data: dict[str, Any], *, full: bool = False) -> Iterator[tuple[str, str]]:
    """The story as (style, line) pairs; style is "head", "plus", "minus", "good", "bad" or ""."""
    who, suites, money, chosen = data["attempt"], data["suites"], data["charged"], data["submitted"]
    yield (
        "head",
        f"attempt {who['id']}: {who['problem']}, {who['strategy']} with {who['model']}, sample {who['sample']}",
    )
    yield "", f"  {suites['visible']} visible and {suites['hidden']} hidden tests; {_state(data)}"
    for note in data["notes"]:
        yield "", f"  of the problem: {note}"
    for fault in data["faults"]:
        yield "bad", f"  try {fault['try']} ended by a fault, {fault['kind']}: {fault['message']}"
    prompts: list[str] = []
    for event in data["events"]:
        yield from _tell(event, prompts, full)
    yield "", ""
    if chosen:
        yield from _submitted(data, chosen)
    tokens = f"{money['prompt_tokens']:,} prompt + {money['completion_tokens']:,} reply tokens"
    yield "", f"charged: {tokens} in {money['replies']} {'reply' if money['replies'] == 1 else 'replies'}"


def _state(data: dict[str, Any]) -> str:
    if data["attempt"]["status"] != "done":
        return f"not done ({data['attempt']['status']})"
    return f"ended: {STOP_REASONS.get(data['stop_reason'], data['stop_reason'])}"


def _tell(event: Event, prompts: list[str], full: bool) -> Iterator[tuple[str, str]]:
    kind, branch = event["kind"], f"branch {event['path']}, " if event["path"] else ""
    if kind == "prompt":
        heat, text = event["params"].get("temperature"), event["messages"][-1]["content"]
        yield "", ""
        yield (
            "head",
            f"{branch}{event['role']} is asked ({event['node']}, temperature {heat}, draw {event['occurrence']})",
        )
        earlier = len(event["messages"]) - 1
        yield "", f"  prompt{f', after {earlier} earlier messages of the dialogue' if earlier else ''}"
        yield from _block("(the same as an earlier prompt)" if text in prompts and not full else text, full)
        prompts.append(text)
    elif kind == "reply":
        tokens = f"{event['prompt_tokens']} + {event['completion_tokens']} tokens, {event['seconds']:.1f} s"
        yield "", f"  reply ({tokens}, finish reason {event['finish_reason']})"
        yield from _block(event["text"], full)
    elif kind == "added":
        yield "", f"  put before the program: {'; '.join(event['added'])}"
    elif kind == "program":
        yield from _program(event, branch, full)
    elif kind == "feedback":
        shown = f", shows test {', '.join(event['tests'])}" if event["tests"] else ""
        where = ", word for word in the next prompt" if event["in_prompt"] else ""
        yield "", f"  feedback: template {event['template']}, by {event['author']}{shown}{where}"
        if event["author"] == "template" and (full or not event["in_prompt"]):  # a role's text was its reply above
            yield from _block(event["text"], full)
    elif kind == "decision":
        yield "", f"  {event['node']} -> {event['go']}: {event['reason']}"


def _program(event: Event, branch: str, full: bool) -> Iterator[tuple[str, str]]:
    candidate = event["candidate"]
    yield "head", f"{branch}candidate {candidate['index']}"
    if candidate["code"] is None:
        yield "", f"  no program found in the reply ({candidate['detail'] or candidate['rule']})"
    elif candidate["same_program"] is not None:
        yield "bad", f"  the same program as candidate {candidate['same_program']}"
    elif event["diff"]:
        yield "", "  program, as a diff"
        for line in event["diff"] if full else event["diff"][:DIFF]:
            style = "plus" if line.startswith("+") else "minus" if line.startswith("-") else ""
            yield style, f"{MARGIN}{line}"
        if len(event["diff"]) > DIFF and not full:
            yield "", f"{MARGIN}... {len(event['diff']) - DIFF} lines (--full shows them) ..."
    elif event["diff"] is None:
        yield "", f"  program (found by rule {candidate['rule']})"
        yield from _block(candidate["code"], full)
    if not candidate["total"]:
        yield "", "  visible suite: none"
    else:
        yield from _verdict("visible", candidate, candidate["failure"], full)
        if candidate["same_failure"] is not None:
            yield "", f"    fails the same way as candidate {candidate['same_failure']}"
    if event["hidden"]:
        yield from _verdict("hidden", event["hidden"], event["hidden"]["failing"], full)


def _verdict(
    suite: str, verdict: dict[str, Any], failing: dict[str, Any] | None, full: bool
) -> Iterator[tuple[str, str]]:
    good = verdict["outcome"] == "passed"
    detail = f" ({verdict['detail']})" if verdict["detail"] else ""
    count = f"{verdict['passed']} of {verdict['total']} tests passed"
    trust = ", tests shared the program's process" if verdict.get("in_process") else ""
    yield "good" if good else "bad", f"  {suite} suite: {verdict['outcome']}{detail}, {count}{trust}"
    if failing:
        parts = (
            ("test", failing.get("show") or failing["test"]),
            ("got", failing["got"]),
            ("expected", failing["expected"]),
        )
        for name, text in parts:
            if text:
                first, *rest = _cut(text, full)
                yield "", f"    {name + ':':<10}{first}"
                yield from (("", f"              {line}") for line in rest)


def _submitted(data: dict[str, Any], chosen: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for event in data["events"]:
        if event["kind"] == "program" and (event["path"], event["candidate"]["index"]) == (
            chosen["path"],
            chosen["index"],
        ):
            of = f" of branch {chosen['path']}" if chosen["path"] else ""
            visible = event["candidate"]["outcome"] if event["candidate"]["total"] else "none"
            hidden = event["hidden"]["outcome"] if event["hidden"] else "not graded"
            yield "head", f"submitted: candidate {chosen['index']}{of}; visible suite {visible}, hidden suite {hidden}"


def _block(text: str, full: bool) -> Iterator[tuple[str, str]]:
    for line in _cut(text, full):
        yield "", f"{MARGIN}{line}"


def _cut(text: str, full: bool) -> list[str]:
    lines = text.rstrip("\n").splitlines() or [""]
    if full or len(lines) <= CUT + 1:
        return lines if full else [_narrow(line) for line in lines]
    head, tail = CUT * 2 // 3, CUT // 3
    middle = f"... {len(lines) - head - tail} lines (--full shows them) ..."
    return [_narrow(line) for line in (*lines[:head], middle, *lines[-tail:])]


def _narrow(line: str) -> str:
    return line if len(line) <= 400 else f"{line[:360]} ... ({len(line)} characters)"
