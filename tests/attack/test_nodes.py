"""Nodes of a strategy's own file that do what no node may: the run ends with one line that names the strategy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentloop import cli

GRAPH = """
import sys
from langgraph.graph import END, START, StateGraph
from agentloop.context import LoopContext
from agentloop.state import LoopState

async def bad(state, runtime):
    {body}

def build(kit):
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("bad", bad)
    graph.add_edge(START, "bad")
    graph.add_edge("bad", {after})
    return graph
"""
PROBLEM = {"id": "p", "statement": "s", "entry_point": "f", "hidden": [{"assert": "f(1) == 1"}]}


@pytest.mark.parametrize(
    ("body", "after", "said"),
    [
        ("raise ValueError('x')", "END", "ValueError: x"),
        ("sys.exit(0)", "END", "called sys.exit"),
        ("return 5", "END", "strategy 'mine': its graph failed: Expected dict"),
        ("return {'stop_reason': object()}", "END", "strategy 'mine': a node's update is not plain data"),
        ("return {}", "'bad'", "strategy 'mine': its graph failed: Recursion limit"),
    ],
)
def test_a_node_that_misbehaves_ends_the_run_with_one_line(
    body: str,
    after: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(GRAPH.format(body=body, after=after))
    (tmp_path / "p.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "s.jsonl").write_text('{"reply": "hello"}\n')
    monkeypatch.chdir(tmp_path)
    words = "run --workload jsonl --data p.jsonl --model scripted:s.jsonl --sandbox local --strategy mine.py --quiet"
    monkeypatch.setattr(sys, "argv", ["agentloop", *words.split(), "--jobs", "1", "--out", "run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.splitlines()[-1].startswith("agentloop: ")
