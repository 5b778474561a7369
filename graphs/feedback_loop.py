"""Generate, run the visible suite, classify, and repair with the prompt of the outcome until it passes.

    task -> generate -> extract -> run -> decide -> submit
            ^                              |  |
            |      repair_failed, repair_timeout, ... (one per outcome)
            +---------------------------------+-- restart
Presets by style: `probe` (class messages, two rounds), `codeassay` (report, one round, last candidate).
"""

from typing import Annotated, Literal

from langgraph.graph import END, START, StateGraph
from pydantic import Field

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.nodes import Heat, History, OnRepeat, Submit
from agentloop.state import LoopState
from agentloop.types import REPAIRABLE


def build(
    kit: Kit,
    *,
    iterations: Annotated[int, Field(ge=1)] = 3,
    history: History = "fresh",
    on_repeat: OnRepeat = "restart",
    heat: Heat = 0.8,
    repair_heat: Heat | Literal["same"] = 0.8,
    submit: Submit = "best_visible",
    style: str = "default",
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: candidates at most. `history`: what a repair request carries. `on_repeat`: what a returned program
    does. `heat`: temperature after a restart. `repair_heat`: of repairs; "same": the experiment's."""
    task, frame, nudge = (kit.template(style, name) for name in ("task", "frame", "nudge"))
    warm = None if repair_heat == "same" else repair_heat
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(task))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    graph.add_node("decide", nodes.decide(iterations, on_repeat))
    graph.add_node("restart", nodes.restart(task, heat))
    graph.add_node("submit", nodes.submit(submit))
    compose.chain(graph, START, "task", "generate", "extract", "run", "decide")
    repairs = [f"repair_{outcome}" for outcome in REPAIRABLE]
    for outcome, name in zip(REPAIRABLE, repairs, strict=True):
        graph.add_node(name, nodes.repair(kit.template(style, outcome), history, frame, nudge, warm))
    graph.add_conditional_edges("decide", nodes.go, [*repairs, "restart", "submit"])
    for name in [*repairs, "restart"]:
        compose.chain(graph, name, "generate")
    compose.chain(graph, "submit", END)
    return graph
