"""A wrapper: another strategy's graph, started afresh after `turn` candidates or on a repeat, inside one budget.

    loop (inner graph) -> decide -> submit
    ^                       |
    +------- reset <--------+
After the fresh starts of the Debugging Decay Index (arXiv:2506.18403) and PairCoder's switch on a repeat.
"""

from typing import Annotated

from langgraph.graph import END, START, StateGraph
from pydantic import Field

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.nodes import Heat
from agentloop.state import LoopState


def build(
    kit: Kit,
    *,
    inner: str = "feedback_loop",
    turn: Annotated[int, Field(ge=1)] = 2,
    iterations: Annotated[int, Field(ge=1)] = 4,
    heat: Heat = 0.8,
    style: str = "default",
) -> StateGraph[LoopState, LoopContext]:
    """`inner`: the wrapped strategy (one that takes `iterations` and `on_repeat`). `turn`: candidates per start.
    `iterations`: candidates in all. `heat`: temperature after a fresh start."""
    loop = kit.strategy(inner, iterations=turn, on_repeat="stop", style=style).compile()
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("loop", compose.wrapped(loop, iterations))
    graph.add_node("decide", nodes.decide(iterations, next_step=lambda candidate: "reset"))
    graph.add_node("reset", compose.reset(heat))
    graph.add_node("submit", nodes.submit())
    compose.chain(graph, START, "loop", "decide")
    graph.add_conditional_edges("decide", nodes.go, ["reset", "submit"])
    compose.chain(graph, "reset", "loop")
    compose.chain(graph, "submit", END)
    return graph
