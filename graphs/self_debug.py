"""The model explains the failure before it repairs: a second role, `explainer`, which may be another model.

    task -> generate -> extract -> run -> decide -> submit
            ^                              |  |
            +---- repair <-- explain <-----+  +--> restart -> generate
After Chen et al., "Teaching Large Language Models to Self-Debug" (arXiv:2304.05128), the explaining form.
"""

from typing import Annotated

from langgraph.graph import END, START, StateGraph
from pydantic import Field

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.nodes import Heat, History, OnRepeat
from agentloop.state import LoopState


def build(
    kit: Kit,
    *,
    iterations: Annotated[int, Field(ge=1)] = 3,
    history: History = "fresh",
    on_repeat: OnRepeat = "restart",
    heat: Heat = 0.8,
    style: str = "default",
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: candidates at most; each repair costs one explanation more. `heat`: temperature after a restart."""
    task, frame, nudge = (kit.template(style, name) for name in ("task", "frame", "nudge"))
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(task))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    graph.add_node("decide", nodes.decide(iterations, on_repeat, next_step=lambda candidate: "explain"))
    graph.add_node("explain", nodes.tell(kit.template(style, "explain"), "explainer", "explanation"))
    graph.add_node("repair", nodes.repair(kit.template(style, "explained"), history, frame, nudge))
    graph.add_node("restart", nodes.restart(task, heat))
    graph.add_node("submit", nodes.submit())
    compose.chain(graph, START, "task", "generate", "extract", "run", "decide")
    graph.add_conditional_edges("decide", nodes.go, ["explain", "restart", "submit"])
    compose.chain(graph, "explain", "repair", "generate")
    compose.chain(graph, "restart", "generate")
    compose.chain(graph, "submit", END)
    return graph
