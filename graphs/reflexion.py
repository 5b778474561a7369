"""Fresh prompts with a memory of reflections: after each failure the `reflector` writes down what went wrong.

    task -> generate -> extract -> run -> decide -> submit
            ^                              |
            +---- retry <-- reflect <------+
After Shinn et al., "Reflexion" (arXiv:2303.11366), with the visible suite in the place of self-written tests.
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
    iterations: Annotated[int, Field(ge=1)] = 3,
    memory: Annotated[int, Field(ge=1)] = 1,
    heat: Heat | None = 0.6,
    style: str = "default",
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: candidates at most. `memory`: reflections kept (1 in the published code task, 3 elsewhere).
    `heat`: temperature of the reflections and retries (None: the experiment's)."""
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(kit.template(style, "task")))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    graph.add_node("decide", nodes.decide(iterations, next_step=lambda candidate: "reflect"))
    graph.add_node("reflect", nodes.tell(kit.template(style, "reflect"), "reflector", "memory", memory, heat))
    graph.add_node(
        "retry", nodes.repair(kit.template(style, "reflections"), "fresh", kit.template(style, "retry"), heat=heat)
    )
    graph.add_node("submit", nodes.submit())
    compose.chain(graph, START, "task", "generate", "extract", "run", "decide")
    graph.add_conditional_edges("decide", nodes.go, ["reflect", "submit"])
    compose.chain(graph, "reflect", "retry", "generate")
    compose.chain(graph, "submit", END)
    return graph
