"""n programs in parallel branches, then a selector.

    fan ==> branch (task -> generate -> extract -> run) ==> select
        ==> branch ...
Branch i draws what `resample` would draw as its i-th sample at the same temperature; the journal and the result do not
depend on which branch ends first.
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
    kit: Kit, *, iterations: Annotated[int, Field(ge=1)] = 3, heat: Heat = 0.8, style: str = "default"
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: number of branches, one candidate each. `heat`: temperature of all of them."""
    branch = StateGraph(LoopState, context_schema=LoopContext)
    branch.add_node("task", nodes.prompt(kit.template(style, "task")))
    branch.add_node("generate", nodes.generate())
    branch.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    branch.add_node("run", nodes.run_visible())
    compose.chain(branch, START, "task", "generate", "extract", "run", END)

    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("fan", compose.fan(heat))
    graph.add_node("branch", compose.wrapped(branch.compile()))
    graph.add_node("select", nodes.submit())
    compose.chain(graph, START, "fan")
    graph.add_conditional_edges("fan", compose.branches(iterations), ["branch"])
    compose.chain(graph, "branch", "select", END)
    return graph
