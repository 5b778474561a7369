"""Putting graphs together: chains of nodes, a strategy inside another one, parallel branches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from langgraph.runtime import Runtime
from langgraph.types import Send

from agentloop.context import LoopContext
from agentloop.nodes import Node, asking
from agentloop.state import LoopState

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.graph.state import CompiledStateGraph


def chain(graph: StateGraph[Any, Any, Any, Any], *names: str) -> None:
    """Edges from each name to the next."""
    for one, other in pairwise(names):
        graph.add_edge(one, other)


def wrapped(loop: CompiledStateGraph[Any, Any, Any, Any], limit: int | None = None) -> Node:
    """A compiled graph as one node, on the path and with the candidates of its caller.

    The inner loop's own budget counts from where it begins (`first`); `limit` is the number of candidates that all of
    its starts together may use.
    """

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        path = state.get("path", "")
        before = [entry for entry in state.get("candidates", []) if entry["path"] == path]
        start = {"path": path, "candidates": before, "first": len(before), "heat": state.get("heat"), "limit": limit}
        result = await loop.ainvoke(start, context=runtime.context)
        return {"candidates": result["candidates"][len(before) :], "charged": result.get("charged", {})}

    return asking(node)


def reset(heat: float) -> Node:
    """Forget dialogue, explanations and memory; the next start draws at `heat`."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        return {"messages": [], "memory": [], "explanation": "", "heat": heat, "restarts": state.get("restarts", 0) + 1}

    return node


def fan(heat: float) -> Node:
    """Set the temperature of the branches that follow."""

    async def node(state: LoopState, runtime: Runtime[LoopContext]) -> dict[str, Any]:
        return {"heat": heat}

    return node


def branches(width: int, node: str = "branch") -> Callable[[LoopState], Awaitable[list[Send]]]:
    """A conditional edge to `width` parallel runs of a node; their paths ("0", "1", ...; inside branch 2 "2.0", ...)
    come from the graph."""

    async def edge(state: LoopState) -> list[Send]:
        inside = f"{state['path']}." if state.get("path") else ""
        return [Send(node, {"path": f"{inside}{number}", "heat": state.get("heat")}) for number in range(width)]

    return edge
