"""Rendering of a report for people: at most 100 columns, each count with its denominator, suites named."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from agentloop.types import NO_VISIBLE_SUITE, OUTCOMES, STOP_REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

WIDTH = 100
"""Columns where the output is no terminal."""
ORACLE = "ORACLE"

Row = dict[str, Any]


def console() -> Console:
    """Standard output: as wide as the terminal, `WIDTH` columns elsewhere."""
    import sys

    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def render(data: dict[str, Any], screen: Console, *, short: bool = False) -> None:
    """Print a report (`agentloop.report.report`). `short`: the first table and the totals only."""
    for part in _parts(data, short):
        whole = bool(isinstance(part, Text) and part.no_wrap)
        if isinstance(part, _Hung):
            lines = wrap(part.text, screen.width, subsequent_indent=" " * part.indent, break_on_hyphens=False)
            part = Text("\n".join(lines), style=part.style)
        screen.print(part, markup=False, highlight=False, soft_wrap=whole)


class _Hung(NamedTuple):
    """A paragraph whose second and later lines stand in from the first."""

    text: str
    indent: int
    style: str = ""


def _parts(data: dict[str, Any], short: bool) -> Iterator[RenderableType | _Hung]:
    directory = data["run"]["directory"]
    if not short:
        yield from _head(data)
    models = sorted({row["model"] for row in data["rows"]})
    for model in models:
        rows = [row for row in data["rows"] if row["model"] == model]
        yield Text(f"\nmodel {model}", style="bold")
        if not any(row["attempts"]["done"] for row in rows):
            yield Text("no attempt is done yet")
            continue
        yield _correctness(rows)
        if not short:
            yield Text()
            yield _effort(rows)
            yield Text("\noutcomes on the visible suite, first -> final program")
            yield _outcomes(rows)
            yield Text()
            yield _stops(rows)
    yield Text()
    if any(row["attempts"]["done"] for row in data["rows"]):
        yield from (_Hung(line, 2, "dim") for line in _legend(data["rows"], short))
    yield from (_Hung(line, 2, "yellow") for line in _warnings(data))
    money = data["paid"]
    price = "no price known" if money["cost"] is None else _dollars(money)
    replies = "reply" if money["replies"] == 1 else "replies"
    paid = f"{money['tokens']:,} tokens in {money['replies']:,} {replies}, {price}" if money["replies"] else "nothing"
    yield Text(f"\npaid in all: {paid}")
    commands = [*(["report"] if short else []), "list", "show"]
    for number, command in enumerate(commands):  # one a line: a narrow terminal would break them anywhere
        more = " ATTEMPT" if command == "show" else ""
        yield Text(f"{'' if number else 'look next:':<13}agentloop {command} {directory}{more}", no_wrap=True)


def _head(data: dict[str, Any]) -> Iterator[_Hung]:
    run, experiment = data["run"], data["experiment"]
    attempts = [row["attempts"] for row in data["rows"]]
    begun, done, faults = (sum(entry[key] for entry in attempts) for key in ("begun", "done", "faults"))
    state = f"{done} of {begun} attempts done" + (f", {faults} ended by a fault" if faults else "")
    yield _Hung(f"run       {run['name']} in {run['directory']}: {state}", 10)
    without = experiment["problems_without_visible_suite"]
    tail = f", {without} of them without a visible suite" if without else ""
    yield _Hung(f"problems  {experiment['problems']} of {experiment['workload']}{tail}; seed {experiment['seed']}", 10)
    for name, params in experiment["models"].items():
        yield _Hung(f"model     {name} ({', '.join(f'{key} {value}' for key, value in sorted(params.items()))})", 10)
    yield _Hung(f"sandbox   {experiment['environment']['isolation']}", 10)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for number, (name, justify) in enumerate(columns):
        table.add_column(name, justify=justify, no_wrap=not number, overflow="fold")  # type: ignore[arg-type]
    return table


def _correctness(rows: list[Row]) -> Table:
    control = any(row["control_at_equal_tokens"] for row in rows)
    columns = [
        ("strategy", "left"), ("done", "right"), ("visible suite\nfirst -> final", "right"),
        ("hidden suite\nfirst -> final (any)", "right"), ("gained\nlost", "right"),
        ("visible\nbut not\nhidden", "right"),
    ]  # fmt: skip
    if control:
        columns.append(("hidden, by\nresample at\nequal tokens", "right"))
    table = _table(*columns)
    for row in rows:
        attempts, visible, hidden, gap = (
            row[key] for key in ("attempts", "visible", "hidden", "visible_passed_hidden_failed")
        )
        cells: list[str | Text] = [
            _name(row),
            f"{attempts['done']} of {attempts['begun']}",
            _suite("{initial} -> {final} of {of}", visible),
            _suite("{initial} -> {final} ({any}) of {of}", hidden),
            _suite("+{gained} -{lost}", hidden),
            _of(gap["count"], gap["of"]),
        ]
        if control:
            cells.append(_control(row["control_at_equal_tokens"]))
        table.add_row(*cells)
    return table


def _effort(rows: list[Row]) -> Table:
    priced = any(row["charged"]["cost"] is not None for row in rows)
    columns = [
        ("strategy", "left"), ("programs\nan attempt", "right"), ("repairs\nrepeated", "right"),
        ("redraws\nrepeated", "right"), ("tokens charged\nprompt + reply", "right"), ("tokens\npaid", "right"),
        ("model\nseconds", "right"),
    ]  # fmt: skip
    if priced:
        columns.append(("cost\ncharged", "right"))
    table = _table(*columns)
    for row in rows:
        charged, mean = row["charged"], row["iterations"]["mean"]
        cells: list[str | Text] = [
            _name(row),
            "-" if mean is None else f"{mean:.2f}",
            _of(row["repairs"]["same_program"], row["repairs"]["of"]),
            _of(row["redraws"]["same_program"], row["redraws"]["of"]),
            f"{charged['prompt_tokens']:,} + {charged['completion_tokens']:,}",
            f"{row['paid']['tokens']:,}",
            f"{row['model_seconds']:,.0f}",
        ]
        table.add_row(*cells, *([_dollars(charged)] if priced else []))
    return table


def _stops(rows: list[Row]) -> Table:
    table = _table(("strategy", "left"), ("why attempts ended", "left"))
    for row in rows:
        reasons = [f"{STOP_REASONS.get(reason, reason)} {count}" for reason, count in row["stop_reasons"].items()]
        table.add_row(_name(row), ", ".join(reasons))
    return table


def _outcomes(rows: list[Row]) -> Table:
    def all_(row: Row) -> list[dict[str, int]]:
        return [row["outcomes"]["visible"][when] for when in ("initial", "final")]

    shown = [
        key for key in (*OUTCOMES, NO_VISIBLE_SUITE) if any(counts.get(key) for row in rows for counts in all_(row))
    ]
    table = _table(("strategy", "left"), *((key.replace("_", " "), "right") for key in shown), ("of", "right"))
    for row in rows:
        first, last = all_(row)
        pairs = [(first.get(key, 0), last.get(key, 0)) for key in shown]
        cells = [f"{before} -> {after}" if before or after else "-" for before, after in pairs]
        table.add_row(_name(row), *cells, str(sum(first.values())))
    return table


def _legend(rows: list[Row], short: bool) -> Iterator[str]:
    yield "first, final: attempts whose first, whose submitted program passes that suite; (any): one of all"
    yield "gained, lost: attempts that pass the hidden suite at the end only, at the beginning only"
    yield "visible but not hidden: of the submitted programs that pass the visible suite"
    if any(row["control_at_equal_tokens"] for row in rows):
        yield "resample at equal tokens: fresh samples, cut at the tokens that each attempt of the row was charged"
    if not short:
        yield "repeated: the same program came back; a repair follows feedback, a redraw is a fresh sample"
        yield "charged: every reply that an attempt uses; paid: each reply once, by the first row that uses it"


def _warnings(data: dict[str, Any]) -> Iterator[str]:
    rows = data["rows"]
    for row in rows:
        attempts, name = row["attempts"], f"{row['strategy']} with {row['model']}"
        if attempts["faults"] or attempts["unfinished"]:
            what = f"{attempts['faults']} ended by a fault, {attempts['unfinished']} unfinished"
            yield f"{name}: {what} of {attempts['begun']}: in no rate; run again to finish them"
        if row["hidden"]["in_process"]:
            yield (
                f"{name}: {row['hidden']['in_process']} hidden verdicts rest on tests that share the program's process"
            )
        if row["hidden"]["ungraded"]:
            yield f"{name}: {row['hidden']['ungraded']} attempts have no hidden verdict yet"
        if row["oracle"]:
            yield f"{name}: {ORACLE}, it sees hidden verdicts; compare it with no other row"
        control = row["control_at_equal_tokens"]
        if control and control["ended_below"]:
            yield (
                f"{name}: resample ended below the tokens allowed in {control['ended_below']} of {control['of']} "
                "attempts (more iterations would let it draw on)"
            )
    for model in sorted({row["model"] for row in rows}):
        done = {row["attempts"]["done"] for row in rows if row["model"] == model}
        if len(done) > 1:
            yield f"rows of {model} rest on different numbers of attempts: compare counts with their denominators"


def _name(row: Row) -> Text:
    name = Text(row["strategy"])
    return name.append(f" {ORACLE}", style="bold red") if row["oracle"] else name


def _of(count: int, of: int) -> str:
    return f"{count} of {of}" if of else "-"


def _suite(form: str, suite: dict[str, int]) -> str:
    return form.format_map(suite) if suite["of"] else "-"


def _control(control: dict[str, Any] | None) -> str:
    return _of(control["hidden"], control["of"]) if control else "-"


def _dollars(money: dict[str, Any]) -> str:
    if money["cost"] is None:
        return "unknown"
    return f"${money['cost']:.4f}" + ("+" if money["unpriced_replies"] else "")
