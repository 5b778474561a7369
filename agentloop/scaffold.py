"""First files for a user's own study: a strategy that runs as it is, a feedback style that is whole."""

from __future__ import annotations

from pathlib import Path

from agentloop.errors import UserError

STRATEGY = '''"""{title}: generate, run the visible suite, and on a failure ask again with what failed.

    task -> generate -> extract -> run -> decide -> submit
            ^                               |
            +------------ repair <----------+
The first line of this text is what `agentloop list` shows; the drawing is for your readers.
"""

from typing import Annotated

from langgraph.graph import END, START, StateGraph
from pydantic import Field

from agentloop import compose, nodes
from agentloop.catalog import Kit
from agentloop.context import LoopContext
from agentloop.state import LoopState


def build(
    kit: Kit, *, iterations: Annotated[int, Field(ge=1)] = 3, style: str = "default"
) -> StateGraph[LoopState, LoopContext]:
    """`iterations`: programs at most. `style`: the feedback style, a name or a folder's path."""
    # Each keyword argument above is a setting: -o strategies.0.settings.iterations=5
    graph = StateGraph(LoopState, context_schema=LoopContext)
    graph.add_node("task", nodes.prompt(kit.template(style, "task")))
    graph.add_node("generate", nodes.generate())
    graph.add_node("extract", nodes.extract(tags_first=kit.style(style).tags_first))
    graph.add_node("run", nodes.run_visible())
    # Where to go after a run: "submit" when the visible suite passes or the budget is used up, else this step.
    graph.add_node("decide", nodes.decide(iterations, next_step=lambda candidate: "repair"))
    # Repairs are drawn warm, as those of feedback_loop: at 0 a small model writes the program that it had.
    # One prompt for every outcome; feedback_loop has one for each. A node of your own is an async function of
    # (state, runtime) that returns what it changes: see `agentloop show strategy reflexion` for one with memory.
    repair = nodes.repair(kit.template(style, "failed"), "fresh", kit.template(style, "frame"), heat=0.8)
    graph.add_node("repair", repair)
    graph.add_node("submit", nodes.submit())
    compose.chain(graph, START, "task", "generate", "extract", "run", "decide")
    graph.add_conditional_edges("decide", nodes.go, ["repair", "submit"])
    compose.chain(graph, "repair", "generate")
    compose.chain(graph, "submit", END)
    return graph
'''

TEMPLATE = """+++
description = "{name}: say here what the model is told, and when"
fields = ["program", "test", "got", "expected"]
+++
This test does not pass:

{{{{ test }}}}

The program gives: {{{{ got }}}}
It must give: {{{{ expected }}}}

Write the whole corrected program in one fenced code block.
"""


def strategy(name: str, into: Path) -> Path:
    """Write `graphs/NAME.py`; its path, relative to `into`. Raises `UserError` if it is there or cannot be written."""
    if not name.isidentifier():
        raise UserError(f"strategy name {name!r}: letters, digits and _ only, and no digit first")
    path = Path("graphs") / f"{name}.py"
    _write(into / path, STRATEGY.format(title=name.replace("_", " ").capitalize()))
    return path


def template(name: str, into: Path) -> tuple[Path, int]:
    """Write `feedback_templates/STYLE/NAME.j2`; its path, and how many default templates were copied beside it.

    A style must have every template that a strategy asks for, so a new one begins as a copy of `default`. Raises
    `UserError`.
    """
    from agentloop.catalog import load_style

    style, _, stem = name.removesuffix(".j2").partition("/")
    if not (style.isidentifier() and stem.isidentifier()):
        raise UserError(f"template {name!r}: write STYLE/NAME, such as mine/failed")
    folder, default = Path("feedback_templates") / style, load_style("default")
    path = folder / f"{stem}.j2"
    fresh = not (into / folder).exists()
    known = default.templates.get(stem)
    _write(into / path, known.text if known else TEMPLATE.format(name=stem))
    others = [one for key, one in default.templates.items() if key != stem] if fresh else []
    for one in others:
        _write(into / folder / f"{one.name.partition('/')[2]}.j2", one.text)
    return path, len(others)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # x: never over what is there, whoever else writes
            file.write(text)
    except FileExistsError as error:
        raise UserError(f"{path} is there already and is left as it is") from error
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
