"""Commands about the catalog: what there is, what an entry is, and a first file for a new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator


def add(app: typer.Typer) -> None:
    """Register the commands."""
    new = typer.Typer(help="Write a first file of your own.", rich_markup_mode=None, no_args_is_help=True)
    new.command("strategy")(new_strategy)
    new.command("template")(new_template)
    app.add_typer(new, name="new")


def new_strategy(name: str = typer.Argument(..., help="Its name: a Python name.")) -> None:
    """Write graphs/NAME.py here.

    It is a loop that runs as it is. Nothing is overwritten.
    """
    from agentloop.scaffold import strategy

    path = strategy(name, Path.cwd())
    print(f"wrote {path}: edit it, look at it, run it")
    print(f"  agentloop show strategy {path} --mermaid")
    print(f"  agentloop run --strategy {path} --model local/qwen2.5-coder-0.5b --limit 5")


def new_template(name: str = typer.Argument(..., metavar="STYLE/NAME", help="For example mine/failed.")) -> None:
    """Write feedback_templates/STYLE/NAME.j2 here.

    In a new style a copy of every default template is put beside it. Nothing is overwritten.
    """
    from agentloop.scaffold import template

    path, copied = template(name, Path.cwd())
    beside = f" (and {copied} default templates beside it, so that the style is whole)" if copied else ""
    print(f"wrote {path}{beside}: edit it, run with it")
    print(f"  agentloop run ... --strategy feedback_loop -o strategies.0.settings.style={path.parent}")


def listing(as_json: bool) -> None:
    """Print the whole catalog, one line an entry."""
    found = {kind: dict(entries) for kind, entries in _entries()}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from textwrap import fill

    width = max(len(name) for entries in found.values() for name in entries)
    for kind, entries in found.items():
        print(kind)
        for name, description in entries.items():
            print(fill(description, 100, initial_indent=f"  {name:<{width}}  ", subsequent_indent=" " * (width + 4)))
    print("a path works wherever a name does; more: agentloop show strategy NAME, show template STYLE/NAME")


def _entries() -> Iterator[tuple[str, dict[str, str]]]:
    from agentloop.catalog import load_strategy, load_style, names
    from agentloop.doctor import local_models
    from agentloop.workloads import names as workloads

    yield "strategies", {name: load_strategy(name).description for name in names("graphs")}
    yield "feedback styles", {name: load_style(name).description for name in names("feedback_templates")}
    profiles = {name: _profile(Path(str(path))) for name, path in names("sandboxes").items()}
    yield "sandboxes", {**SANDBOXES, **profiles}
    yield "workloads", {name: WORKLOADS.get(name, "of an installed package") for name in workloads()}
    yield "models", {**local_models(), **MODELS}


SANDBOXES = {
    "auto": "docker where an engine answers, else local",
    "any": "auto, and local-reduced where there are no namespaces; for demonstrations",
}
"""What is no profile: which of them is taken shows when a run starts."""
WORKLOADS = {
    "humaneval": "164 Python functions; visible suite: the docstring's examples, hidden suite: its check",
    "mbpp": "Python functions; visible suite: the first assert, hidden suite: the others",
    "humanevalplus": "HumanEval with hundreds of further inputs each; the file is yours (--data)",
    "mbppplus": "MBPP with about a hundred further inputs each; the file is yours (--data)",
    "quixbugs": "algorithms with one wrong line, to be repaired; the file is yours (--data)",
    "codenet": "stdin and stdout problems in the record shape of PROBE; the file is yours (--data)",
    "jsonl": "your own problems in a file of the documented shape (--data FILE)",
}
MODELS = {
    "openai/NAME, anthropic/NAME, ...": "any model that LiteLLM knows; with --api-base URL any compatible server",
    "scripted:FILE": "answers by the rules of a file; for tests, free",
}


def _profile(path: Path) -> str:
    import tomllib

    return str(tomllib.loads(path.read_text(encoding="utf-8")).get("description", ""))


def show_entry(kind: str, name: str, *, mermaid: bool) -> None:
    """Print one entry of the catalog. Raises `UserError` for unknown names."""
    if kind == "template":
        _show_template(name)
    elif kind == "sandbox":
        _show_sandbox(name)
    elif mermaid:
        from agentloop.config import StrategyConfig
        from agentloop.planning import plan_strategy

        plan = plan_strategy(StrategyConfig(name=name), None, Path.cwd(), sketch=True)
        print(plan.graph.get_graph().draw_mermaid())
    else:
        _show_strategy(name)


def _show_strategy(name: str) -> None:
    from textwrap import fill

    from agentloop.catalog import Kit, load_strategy

    strategy = load_strategy(name, Path.cwd())
    module_doc = _docstring(strategy.text)
    print(f"{strategy.name}: {module_doc}")
    print(f"\nfile  {strategy.path}")
    if strategy.oracle:
        print("it sees hidden verdicts (ORACLE) and is marked in every table")
    print("settings and their defaults")
    values = strategy.resolve({}, Kit(Path.cwd()))
    width = max(map(len, values), default=0)
    choices = strategy.choices()
    for key, value in values.items():
        others = [json.dumps(other) for other in choices.get(key, ()) if other != value]
        print(f"  {key:<{width}}  {json.dumps(value)}" + (f", or {', '.join(others)}" if others else ""))
    if strategy.build.__doc__:
        print("\n" + fill(" ".join(strategy.build.__doc__.split()), 100))
    print(f"\nset one: -o strategies.0.settings.KEY=VALUE; draw it: agentloop show strategy {name} --mermaid")


def _show_template(name: str) -> None:
    from agentloop.catalog import Kit, names
    from agentloop.errors import UserError
    from agentloop.feedback import FIELDS

    style, slash, stem = name.removesuffix(".j2").rpartition("/")
    kit = Kit(Path.cwd())
    if not slash:
        known = [f"{name}/{each}" for each in kit.style(name).templates] if name in names("feedback_templates") else []
        raise UserError(f"template {name!r}: write STYLE/NAME: {', '.join(known) or 'for example default/failed'}")
    template = kit.template(style, stem)
    print(f"{template.name}: {template.description}")
    print(f"\nfile  {kit.style(style).folder / (stem + '.j2')}")
    print("fields")
    width = max(map(len, template.fields), default=0)
    for field in template.fields:
        print(f"  {field:<{width}}  {FIELDS[field]}")
    print(f"\n{template.body.rstrip()}")


def _show_sandbox(name: str) -> None:
    from agentloop.catalog import find

    if name in SANDBOXES:
        print(f"{name}: {SANDBOXES[name]}")
        return
    path = find("sandboxes", name, Path.cwd())
    print(f"file  {path}\n\n{path.read_text(encoding='utf-8').rstrip()}\n\nwhat works here: agentloop doctor")


def _docstring(text: str) -> str:
    import ast

    return ast.get_docstring(ast.parse(text)) or "(no description)"
