"""Writes the reference pages that follow from the code: python docs/generate.py (a test fails when they are stale)."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

REFERENCE = Path(__file__).resolve().parent / "reference"


def experiment() -> str:
    """Every key of an experiment file, from the models of `agentloop.config`."""
    from agentloop import config

    lines = [
        "# Experiment files",
        "",
        "An experiment is a TOML file, options of `agentloop run`, or both; options win, and `-o KEY=VALUE` sets any",
        "key. Paths in the file start from its own folder. A key that is not listed here is refused with the nearest",
        "known one.",
        "",
        "```toml",
        'name = "small"',
        "samples = 2",
        "",
        "[workload]",
        'name = "humaneval"',
        "limit = 10",
        "",
        "[[models]]",
        'name = "openai/gpt-4o-mini"',
        "temperature = 0.2",
        "",
        "[[strategies]]",
        'name = "feedback_loop"',
        'settings = { style = "probe" }',
        "```",
    ]
    parts: list[tuple[str, str, type[BaseModel]]] = [
        ("At the top", "", config.Experiment),
        ("`[workload]`", "workload.", config.WorkloadConfig),
        ("`[[models]]`, one table a model", "models.0.", config.ModelConfig),
        ("`[[strategies]]`, one table a strategy", "strategies.0.", config.StrategyConfig),
    ]
    for title, prefix, model in parts:
        lines += ["", f"## {title}", "", _words(model.__doc__ or ""), ""]
        if prefix:
            lines += [f"With `-o`: `-o {prefix}KEY=VALUE`" + (_BY_LABEL if "0" in prefix else "."), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            meaning = _words(field.description or "") or _tables(field)
            lines.append(f"| `{name}` | {_cell(_type(field))} | {_default(field)} | {_cell(meaning)} |")
    return _page(lines)


_BY_LABEL = ", with the number of the table or its label."


def command_line() -> str:
    """The help of every command."""
    import typer

    from agentloop.cli import app

    lines = [
        "# Command line",
        "",
        "`run`, `judge` and `validate` are functions too, with the same words: `agentloop.run`,",
        "`agentloop.judge_programs`, `agentloop.validate`.",
        "",
        "Exit status: 0 all is well; 1 agentloop failed, or `replay` found a difference, or `doctor` no sandbox; 2 the",
        "user can mend it; 3 faults remain or the run was stopped early; 130 Ctrl-C in a command that only reads.",
        "Every error is one line on standard error.",
    ]
    for name, text in _helps(typer.main.get_command(app), "agentloop"):
        lines += ["", f"## `{name}`", "", "```text", text.rstrip(), "```"]
    return _page(lines)


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of those below it, as a terminal of 100 columns shows it."""
    own = name.rpartition(" ")[2]
    context = command.make_context(own, [], parent, resilient_parsing=True, max_content_width=100, terminal_width=100)
    yield name, command.get_help(context)
    for child in getattr(command, "commands", {}).values():
        yield from _helps(child, f"{name} {child.name}", context)


_SETTINGS = (
    ("iterations", "number", "candidates (programs) of one attempt at most"),
    ("heat", "number", "temperature where a draw must differ, in place of the model's own"),
    ("style", "text", "feedback style: a name, or the path of a folder"),
    ("history", '`"fresh"`', "a repair request is one message: task, last program and feedback"),
    ("history", '`"full"`', "a repair request carries the whole dialogue"),
    ("on_repeat", '`"keep"`', "a program that comes back unchanged is treated like any other"),
    ("on_repeat", '`"nudge"`', "the model is told that it came back (template `nudge`)"),
    ("on_repeat", '`"heat"`', "the next request is warmer by 0.4, up to 1.2"),
    ("on_repeat", '`"restart"`', "the dialogue is dropped and a program is drawn afresh, with `heat`"),
    ("on_repeat", '`"stop"`', "the attempt ends"),
    (
        "submit",
        '`"best_visible"`',
        "the first program that passes the visible suite, else the one that passes most tests",
    ),
    ("submit", '`"last"`', "the last program"),
)


def strategies() -> str:
    """The built-in strategies with their settings, from the files in `graphs/`."""
    from agentloop.catalog import Kit, load_strategy, names

    lines = [
        "# Strategies",
        "",
        "Set one with `settings = { iterations = 5 }` in the strategy's table, or with",
        "`-o strategies.0.settings.iterations=5`.",
        "What is not set comes from the feedback style (`probe` and `codeassay` set some), else from the table below.",
        "`agentloop show strategy NAME --mermaid` gives the graph as Mermaid text, which GitHub and most editors draw.",
        "",
        "Settings that mean the same wherever they stand:",
        "",
        "| setting | value | meaning |",
        "|---|---|---|",
        *(f"| `{name}` | {value} | {_cell(meaning)} |" for name, value, meaning in _SETTINGS),
    ]
    for name in names("graphs"):
        strategy = load_strategy(name)
        told = fill(_words(strategy.build.__doc__ or ""), 120)
        lines += ["", f"## `{name}`", "", strategy.description, "", told, ""]
        lines += ["| setting | default | or |", "|---|---|---|"]
        choices = strategy.choices()
        for key, value in strategy.resolve({}, Kit()).items():
            others = ", ".join(f"`{json.dumps(other)}`" for other in choices.get(key, ()) if other != value)
            lines.append(f"| `{key}` | `{json.dumps(value)}` | {others} |")
    return _page(lines)


def templates() -> str:
    """The fields of feedback templates and the built-in styles, from `agentloop.feedback` and the files."""
    from agentloop.catalog import load_style, names
    from agentloop.feedback import FIELDS

    lines = [
        "# Feedback templates",
        "",
        "`agentloop show template STYLE/NAME` prints one.",
        "",
        "## Fields",
        "",
        "What a template may declare. Those about a candidate are known once there is one.",
        "",
        "| field | meaning |",
        "|---|---|",
        *(f"| `{name}` | {_cell(meaning)} |" for name, meaning in FIELDS.items()),
    ]
    for name in names("feedback_templates"):
        style = load_style(name)
        lines += ["", f"## `{name}`", "", f"{style.description[:1].upper()}{style.description[1:]}.", ""]
        if style.settings:
            said = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in style.settings.items())
            lines += [f"Sets, for strategies that take them: {said}.", ""]
        lines += ["| template | says | fields |", "|---|---|---|"]
        for stem, template in style.templates.items():
            fields = ", ".join(f"`{field}`" for field in template.fields)
            lines.append(f"| `{stem}` | {_cell(template.description)} | {fields} |")
    return _page(lines)


PAGES = {"experiment.md": experiment, "cli.md": command_line, "strategies.md": strategies, "templates.md": templates}


def _type(field: FieldInfo) -> str:
    text = _name(field.annotation)
    bounds = {type(bound).__name__: bound for bound in field.metadata}
    words = {"Ge": ("ge", "{} or more"), "Gt": ("gt", "above {}"), "Le": ("le", "{} at most"), "Lt": ("lt", "below {}")}
    said = [form.format(getattr(bounds[kind], key)) for kind, (key, form) in words.items() if kind in bounds]
    return ", ".join([text, *said])


def _name(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_name(one) for one in inner if one is not type(None))
    if origin is list:
        return (
            "tables" if isinstance(inner[0], type) and issubclass(inner[0], BaseModel) else f"list of {_name(inner[0])}"
        )
    if origin is dict:
        return "table"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "table"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(kind, str(kind))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value is PydanticUndefined:
        return "its defaults"
    return "none" if value in (None, "", [], {}) else f"`{json.dumps(value)}`"


def _tables(field: FieldInfo) -> str:
    return "see below" if _name(field.annotation) in ("table", "tables") else ""


def _words(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
