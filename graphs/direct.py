"""One program, no feedback: the zero point of every curve.

task -> generate -> extract -> run -> submit
"""

from langgraph.graph import END, START, StateGraph

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.state import LoopState


def build(kit: Kit, *, style: str = "default") -> StateGraph[LoopState, LoopContext]:
    """`style`: feedback style whose task prompt and extraction rules are used."""
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(kit.template(style, "task")))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    graph.add_node("submit", nodes.submit("last"))
    compose.chain(graph, START, "task", "generate", "extract", "run", "submit", END)
    return graph
