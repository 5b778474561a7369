"""The shared nodes: the only ones that most strategies need.

Each function here makes a node from its settings; a node maps state and context to a partial state. Nodes reach models
and sandboxes through the context only, and route nothing themselves: `decide` writes a `Decision` with its reason, and
the graph's conditional edge (`go`) follows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from langgraph.runtime import Runtime
from pydantic import Field

from agentloop.context import LoopContext
from agentloop.extract import extract as extract_program
from agentloop.program import ast_digest, failure_signature
from agentloop.state import Candidate, LoopState, Message, best_visible
from agentloop.types import NO_VISIBLE_SUITE

if TYPE_CHECKING:
    from agentloop.feedback import Template
    from agentloop.types import Problem, Reply, SuiteVerdict

Node = Callable[[LoopState, Runtime[LoopContext]], Awaitable[dict[str, Any]]]
OnRepeat = Literal["keep", "nudge", "heat", "restart", "stop"]
"""What a loop does when a program comes back unchanged: go on as if not, say so to the model, raise the temperature,
drop the dialogue and draw afresh, or end."""
History = Literal["fresh", "full"]
"""What the repairing request carries: task, last program and feedback in one message; or the whole dialogue."""
Submit = Literal["best_visible", "last"]
Heat = Annotated[float, Field(gt=0, le=2)]
"""A sampling temperature above 0: of draws that must differ."""

_HOTTEST = 1.2


def asking(node: Node, calls: int = 1) -> Node:
    """Mark a node with the model calls that it makes at most each time it runs; the plan's ceiling counts them."""
    node.asks = calls  # type: ignore[attr-defined]
    return node


async def go(state: LoopState) -> str:
    """The conditional edge after a deciding node: where its decision says. (Async: a sync edge costs a thread hop.)"""
    return state["decision"]["go"]


def prompt(task: Template) -> Node:
    """Begin a dialogue: one user message from the task template."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        return {"messages": [_user(runtime.context.render(task, {}))]}

    return node


def generate(role: str = "solver") -> Node:
    """Ask the role's model with the dialogue as it stands; its reply joins the dialogue."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        path = state.get("path", "")
        draw, heat = path or "0", state.get("heat")
        reply = await runtime.context.ask(path, state["messages"], role=role, heat=heat, draw=draw)
        return {
            "reply": reply.text,
            "finish_reason": reply.finish_reason,
            "messages": [*state["messages"], Message(role="assistant", content=reply.text)],
            "charged": charge(reply, role),
        }

    return asking(node)


def extract(*, tags_first: bool = False) -> Node:
    """Take the program out of the reply. `tags_first` as the style says it (`Style.tags_first`)."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        found = extract_program(state["reply"], runtime.context.problem, state["finish_reason"], tags_first=tags_first)
        rule = {"rule": found.rule, "detail": found.detail, "added": list(found.added)}
        return {"code": found.code, "extraction": rule}

    return node


def run_visible() -> Node:
    """Run the visible suite, classify, append the candidate; repeats of programs and failures are noticed here."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        context, path = runtime.context, state.get("path", "")
        before = [entry for entry in state.get("candidates", []) if entry["path"] == path]
        code, extraction = state["code"], state["extraction"]
        candidate = Candidate(
            index=len(before), path=path, code=code, rule=extraction["rule"], added=extraction["added"],
            outcome="no_code", detail=extraction["detail"], passed=0, total=len(context.problem.visible.tests),
            failure=None, report="",
            signature=f"no_code:{extraction['detail']}", ast="", same_program=None, same_failure=None, execution=None,
        )  # fmt: skip
        update: dict[str, Any] = {}
        if code is not None:
            candidate["ast"] = ast_digest(code, context.problem.language)
            if context.problem.visible.tests:
                verdict, candidate["execution"] = await context.run(code)
                _classify(candidate, verdict, context.problem)
                update["charged"] = {"executions": 1}
            else:
                candidate["outcome"], candidate["detail"] = "failed", NO_VISIBLE_SUITE
                candidate["signature"] = NO_VISIBLE_SUITE
            candidate["same_program"] = _earliest(before, "ast", candidate["ast"])
        if candidate["outcome"] != "passed":
            candidate["same_failure"] = _earliest(before, "signature", candidate["signature"])
        return update | {"candidates": [candidate]}

    return node


def decide(iterations: int, on_repeat: OnRepeat = "keep", next_step: Callable[[Candidate], str] | None = None) -> Node:
    """Where to go after a run: `submit` with the stop reason, or on to `next_step(candidate)` (`repair_OUTCOME`).

    `iterations` counts candidates since the last `first` (a wrapper's mark). On a repeat `on_repeat` decides:
    "restart" goes to the graph's node `restart`; "nudge" and "heat" change the repair and say so in the reason.
    """
    onward = next_step or (lambda candidate: f"repair_{candidate['outcome']}")

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        own = [entry for entry in state["candidates"] if entry["path"] == state.get("path", "")]
        last, used = own[-1], len(own) - state.get("first", 0)
        if not runtime.context.problem.visible.tests:
            return _stop(NO_VISIBLE_SUITE, "the problem has no visible test: nothing can route a repair")
        if last["outcome"] == "passed":
            return _stop("passed", f"{last['passed']} of {last['total']} visible tests passed")
        why = (
            f"{last['outcome']} {last['detail']}".strip()
            + f", {last['passed']} of {last['total']} visible tests passed"
        )
        if used >= iterations or len(own) >= (state.get("limit") or len(own) + 1):
            return _stop("budget", f"{why}; {len(own)} candidates used")
        if last["same_program"] is None:
            return {"decision": {"go": onward(last), "reason": why}, "nudge": False}
        return _repeated(state, last, on_repeat, onward(last), why)

    return node


def _repeated(state: LoopState, last: Candidate, on_repeat: OnRepeat, onward: str, why: str) -> dict[str, Any]:
    why = f"{why}; same program as candidate {last['same_program']}, on_repeat={on_repeat}"
    if on_repeat == "stop":
        return _stop("repeat", why)
    if on_repeat == "restart":
        return {"decision": {"go": "restart", "reason": why}, "nudge": False}
    update: dict[str, Any] = {"decision": {"go": onward, "reason": why}, "nudge": on_repeat == "nudge"}
    if on_repeat == "heat":
        update["heat"] = min(_HOTTEST, round((state.get("heat") or 0.4) + 0.4, 2))
        update["decision"]["reason"] += f", temperature {update['heat']}"
    return update


def repair(
    feedback: Template, history: History, frame: Template, nudge: Template | None = None, heat: float | None = None
) -> Node:
    """Write the repair prompt for the last candidate's outcome. `frame` wraps the feedback where history is "fresh"."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        context, last = runtime.context, state["candidates"][-1]
        values = facts(state)
        text = context.render(feedback, values)
        if nudge is not None and state.get("nudge"):
            text += "\n" + context.render(nudge, values)
        told = {"text": text, "template": feedback.name, "author": "template", "tests": shown(last)}
        update: dict[str, Any] = {"feedback": told}
        if history == "full":
            update["messages"] = [*state["messages"], _user(text)]
        else:
            update["messages"] = [_user(context.render(frame, values | {"feedback": text}))]
        if heat is not None and state.get("heat") is None:
            update["heat"] = heat
        return update

    return node


def restart(task: Template, heat: float) -> Node:
    """Drop the dialogue and begin again from the task, warm enough that a fresh draw differs."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        messages = [_user(runtime.context.render(task, {}))]
        return {"messages": messages, "heat": heat, "restarts": state.get("restarts", 0) + 1}

    return node


def tell(
    template: Template, role: str, into: Literal["explanation", "memory"], keep: int = 1, heat: float | None = None
) -> Node:
    """Let a second role write text about the last candidate (an explanation, a reflection) in a request of its own.

    "explanation" replaces the last one; "memory" appends and keeps the latest `keep`.
    """

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        context, path = runtime.context, state.get("path", "")
        asked = context.render(template, facts(state))
        reply = await context.ask(path, [_user(asked)], role=role, heat=heat)
        told = {"text": reply.text, "template": template.name, "author": role, "tests": shown(state["candidates"][-1])}
        update: dict[str, Any] = {"charged": charge(reply, role), "feedback": told}
        if into == "memory":
            return update | {"memory": [*state.get("memory", []), reply.text.strip()][-keep:]}
        return update | {"explanation": reply.text.strip()}

    return asking(node)


def submit(rule: Submit = "best_visible") -> Node:
    """Choose the submitted candidate.

    "best_visible": see `agentloop.state.best_visible`. "last": the latest (CodeAssay).
    """

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        candidates = state.get("candidates", [])
        chosen = select(candidates, rule)
        if chosen is None:
            return {"submitted": None, "stop_reason": "no_candidate"}
        of = f"candidate {chosen['index']}" + (f" of branch {chosen['path']}" if chosen["path"] else "")
        passed = f"{chosen['passed']} of {chosen['total']} visible tests passed"
        why = f"{of} of {len(candidates)} submitted ({rule}): {passed}"
        return {
            "submitted": {"path": chosen["path"], "index": chosen["index"], "rule": rule},
            "stop_reason": state.get("stop_reason") or ("passed" if chosen["outcome"] == "passed" else "budget"),
            "decision": {"go": "END", "reason": why},
        }

    return node


def select(candidates: list[Candidate], rule: Submit = "best_visible") -> Candidate | None:
    """The submitted candidate of a list in order of generation, None for an empty list."""
    if not candidates:
        return None
    if rule == "last":
        return candidates[-1]
    ranks = [(entry["outcome"] == "passed", entry["passed"], entry["code"] is not None) for entry in candidates]
    return candidates[best_visible(ranks)]


def facts(state: LoopState) -> dict[str, Any]:
    """Template fields that the state knows: the last candidate, its failing test, what other roles wrote."""
    values: dict[str, Any] = {"reflections": state.get("memory", []), "explanation": state.get("explanation", "")}
    if not state.get("candidates"):
        return values
    last = state["candidates"][-1]
    failure: Mapping[str, Any] = last["failure"] or {}
    return values | {
        "program": last["code"] or "",
        "outcome": last["outcome"],
        "detail": last["detail"],
        "test": failure.get("show", ""),
        "got": failure.get("got", ""),
        "expected": failure.get("expected", ""),
        "report": last["report"],
        "passed": last["passed"],
        "total": last["total"],
        "iteration": last["index"] + 1,
        "repeated": last["same_program"] is not None,
    }


def shown(candidate: Candidate) -> list[str]:
    """Ids of the visible tests that feedback on a candidate shows."""
    return [candidate["failure"]["test"]] if candidate["failure"] else []


def charge(reply: Reply, role: str) -> dict[str, float]:
    """What a reply is charged, as counters."""
    tokens = reply.prompt_tokens + reply.completion_tokens
    return {
        "calls": 1,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "cost": reply.cost or 0.0,
        "model_seconds": reply.seconds,
        f"tokens:{role}": tokens,
    }


def _classify(candidate: Candidate, verdict: SuiteVerdict, problem: Problem) -> None:
    candidate["outcome"], candidate["detail"] = verdict.outcome, verdict.detail
    candidate["passed"], candidate["total"] = verdict.passed, verdict.total
    candidate["signature"] = failure_signature(verdict)
    shows = {test.id: test.show for test in problem.visible.tests}
    failing = [test for test in verdict.tests if test.outcome != "passed"]
    if failing:
        first = failing[0]
        candidate["failure"] = {
            "test": first.test, "show": shows[first.test], "got": first.got, "expected": first.expected,
        }  # fmt: skip
        lines = [f"{shows[test.test]}\n{test.outcome} {test.detail}: {test.got}".rstrip() for test in failing]
        candidate["report"] = "\n\n".join(lines)


def _earliest(before: list[Candidate], key: str, value: str) -> int | None:
    return next((entry["index"] for entry in before if entry[key] == value), None)  # type: ignore[literal-required]


def _stop(reason: str, why: str) -> dict[str, Any]:
    return {"decision": {"go": "submit", "reason": why}, "stop_reason": reason}


def _user(text: str) -> Message:
    return Message(role="user", content=text)
