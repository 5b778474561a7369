"""Graphs with parallel branches and graphs in graphs: what is recorded never depends on which of two ends first."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.replay import replay
from tests.core.conftest import ADD, Study, fenced, study  # noqa: F401

SIDE_BY_SIDE = """
from langgraph.graph import END, START, StateGraph
from agentloop import compose, nodes
from agentloop.context import LoopContext
from agentloop.state import LoopState

def ask(word):
    async def node(state, runtime):
        await runtime.context.ask("", [{"role": "user", "content": word}])
        return {}
    return node

def build(kit):
    graph = StateGraph(LoopState, context_schema=LoopContext)
    for word in ("slow", "fast"):
        graph.add_node(word, ask(word))
        graph.add_edge(START, word)
    graph.add_node("submit", nodes.submit())
    graph.add_edge(["slow", "fast"], "submit")
    graph.add_edge("submit", END)
    return graph
"""
NESTED = """
from langgraph.graph import END, START, StateGraph
from agentloop import compose, nodes
from agentloop.context import LoopContext
from agentloop.state import LoopState

def leaf(kit):
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(kit.template("default", "task")))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract())
    graph.add_node("run", nodes.run_visible())
    compose.chain(graph, START, "task", "generate", "extract", "run", END)
    return graph

def fanned(inner, edge):
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("fan", compose.fan(0.8))
    graph.add_node("inner", compose.wrapped(inner.compile()))
    graph.add_node("best", nodes.submit())
    compose.chain(graph, START, "fan")
    graph.add_conditional_edges("fan", edge, ["inner"])
    compose.chain(graph, "inner", "best", END)
    return graph

def build(kit):
    return fanned({inner}, compose.branches(3, "inner"))
"""
PATHLESS = """
from typing import TypedDict
from langgraph.types import Send

class Own(TypedDict):
    n: int

async def work(state, runtime):
    await runtime.context.ask("", [{"role": "user", "content": str(state["n"])}])
    return {}

def build(kit):
    inner = StateGraph(Own, context_schema=LoopContext)
    inner.add_node("work", work)
    compose.chain(inner, START, "work", END)
    loop = inner.compile()

    async def run(state, runtime):
        await loop.ainvoke({"n": int(state["path"])}, context=runtime.context)
        return {}

    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("fan", compose.fan(0.8))
    graph.add_node("inner", run)
    graph.add_node("best", nodes.submit())
    compose.chain(graph, START, "fan")
    graph.add_conditional_edges("fan", compose.branches(2, "inner"), ["inner"])
    compose.chain(graph, "inner", "best", END)
    return graph
"""
DRAWS = {"replies": [fenced(f"return a - {number}") for number in range(97)], "delay": [0, 0.1]}


def _strategy(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


@pytest.mark.parametrize("text", [SIDE_BY_SIDE, NESTED.partition("def leaf")[0] + PATHLESS])
def test_nodes_that_share_a_path_are_refused(study: Study, tmp_path: Path, text: str) -> None:  # noqa: F811
    with pytest.raises(UserError, match="run side by side on the branch path ''"):
        study([{"last": "slow|0", "reply": "s", "delay": 0.2}, {"reply": "f"}], [_strategy(tmp_path, text)])


def test_branches_in_branches_draw_anew_and_replay_equal(study: Study, tmp_path: Path) -> None:  # noqa: F811
    text = NESTED.replace("{inner}", 'fanned(leaf(kit), compose.branches(3, "inner"))')
    strategies = [_strategy(tmp_path, text), {"name": "best_of_n", "settings": {"heat": 0.8}}]
    _, run = study([DRAWS], strategies, [ADD])
    db = sqlite3.connect(run / "store.sqlite")
    replies = db.execute("SELECT COUNT(*) FROM journal WHERE kind='reply'").fetchone()[0]
    db.close()
    assert replies == 9  # nine branches of branches, of which 0.0, 1.0 and 2.0 draw what best_of_n's branches do
    for frozen in (False, True):
        found = asyncio.run(replay(run, frozen=frozen))
        assert (found.equal, found.attempts) == (True, 2), found.differences


def test_a_branch_may_have_any_name(study: Study, tmp_path: Path) -> None:  # noqa: F811
    text = NESTED.replace("{inner}", "leaf(kit)").replace('compose.branches(3, "inner")', "named")
    text += "\nfrom langgraph.types import Send\nasync def named(state):\n"
    text += "    return [Send('inner', {'path': name, 'heat': 0.8}) for name in ('größer', 'a.0', '0.x')]\n"
    _, run = study([DRAWS], [_strategy(tmp_path, text)], [ADD])
    assert asyncio.run(replay(run)).equal


def test_a_clock_that_is_set_back_makes_no_time_negative(
    study: Study,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(10**9, 0, -10))
    monkeypatch.setattr(time, "time", lambda: float(next(ticks)))
    _, run = study([{"reply": fenced("return a + b")}], ["direct"])
    db = sqlite3.connect(run / "store.sqlite")
    assert db.execute("SELECT MIN(seconds) >= 0 FROM transitions").fetchone()[0] == 1
    db.close()
