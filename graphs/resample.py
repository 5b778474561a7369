"""Fresh samples from the same prompt until the visible suite passes: the control that every repair must beat.

    task -> generate -> extract -> run -> decide -> submit
    ^                                       |
    +---------------- again ----------------+
After Kapoor et al., "AI Agents That Matter" (arXiv:2407.01502): retry and warming.
"""

from typing import Annotated

from langgraph.graph import END, START, StateGraph
from pydantic import Field

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.state import LoopState


def build(
    kit: Kit,
    *,
    iterations: Annotated[int, Field(ge=1)] = 3,
    # A control that cannot vary is no control: at temperature 0 a deterministic server repeats itself.
    heat: Annotated[float, Field(ge=0.6, le=2.0)] = 0.8,
    style: str = "default",
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: samples at most. `heat`: temperature of the second and later ones, 0.6 at least."""
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(kit.template(style, "task")))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    graph.add_node("decide", nodes.decide(iterations, next_step=lambda candidate: "again"))
    graph.add_node("again", nodes.restart(kit.template(style, "task"), heat))
    graph.add_node("submit", nodes.submit())
    compose.chain(graph, START, "task", "generate", "extract", "run", "decide")
    graph.add_conditional_edges("decide", nodes.go, ["again", "submit"])
    compose.chain(graph, "again", "generate")
    compose.chain(graph, "submit", END)
    return graph
