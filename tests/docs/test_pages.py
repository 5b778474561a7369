"""What every page must hold: links that resolve, blocks that parse, options that exist, no paths of one machine."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloop.config import parse
from agentloop.feedback import parse_template
from tests.docs.blocks import Block, agrees, blocks, changed, commands
from tests.docs.conftest import DOCS, ROOT

PAGES = sorted(
    [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    + [ROOT / name / "README.md" for name in ("graphs", "feedback_templates", "sandboxes", "experiments")]
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def of(language: str) -> Iterator[tuple[Path, Block]]:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == language:
                yield page, block


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = _HEADING.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pages
def test_every_relative_link_resolves(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


@pages
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    found = re.findall(r"(?:^|[\s`\"'(=])(/(?:home|root|work|Users|mnt|opt)/\S*)", page.read_text(encoding="utf-8"))
    assert not found


def test_the_index_leads_to_every_page() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(text)}
    assert not [page for page in DOCS.rglob("*.md") if page not in linked and page.name != "index.md"]


def test_every_file_that_a_page_names_is_there() -> None:
    """Words in code marks that look like files of the checkout."""
    known = ("agentloop/", "docs/", "experiments/", "sandboxes/", "tests/")
    for page in PAGES:
        words = _CODE.sub("", page.read_text(encoding="utf-8"))
        for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", words):
            assert not path.startswith(known) or (ROOT / path).exists(), f"{page.name}: {path}"


def test_python_blocks_compile() -> None:
    found = list(of("python"))
    assert len(found) >= 5
    for page, block in found:
        compile(block.text, f"{page.name}:{block.line}", "exec", dont_inherit=True)


def test_toml_blocks_are_what_they_seem(tmp_path: Path) -> None:
    from agentloop.models.scripted import ScriptedModel
    from agentloop.sandbox import open_sandbox

    seen = dict.fromkeys(("experiment", "profile", "script"), 0)
    for number, (page, block) in enumerate(of("toml")):
        tables = tomllib.loads(block.text)
        file = tmp_path / f"{number}.toml"
        file.write_text(block.text)
        if "models" in tables or "strategies" in tables or "workload" in tables:
            parse(tables, f"{page.name}:{block.line}")
            seen["experiment"] += 1
        elif "backend" in tables:
            (tmp_path / str(tables.get("recipe", "."))).mkdir(exist_ok=True)
            (tmp_path / str(tables.get("recipe", ".")) / "Dockerfile").touch()
            open_sandbox(str(file), lanes=1)
            seen["profile"] += 1
        elif "rule" in tables:
            ScriptedModel(f"scripted:{file}")
            seen["script"] += 1
    assert all(seen.values()), seen


def test_template_blocks_parse() -> None:
    for page, block in of("jinja"):
        parse_template(f"{page.name}:{block.line}", block.text)


def test_the_options_of_unrun_commands_exist() -> None:
    import typer

    from agentloop.cli import app

    root = typer.main.get_command(app)
    typed = [
        (page, line.split("#")[0])
        for page, block in of("sh")
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("agentloop ")
    ]
    assert len(typed) >= 8
    for page, line in typed:
        words = [word for word in shlex.split(line)[1:] if word != "..."]
        command = root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        context = command.make_context("agentloop", words, resilient_parsing=True)
        assert not context.args, f"{page.name}: {line}: {context.args}"


@pytest.mark.parametrize(
    ("output", "shown", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a  \nb\n", "a\nb\n", True),
        ("a\nb\nc\n", "a\n...\n", True),
        ("a\n", "a\n...\n", True),
        ("a\nb\nc\n", "...\nc\n", True),
        ("in 1.2 s (4/s)\n", "in ... s (...)\n", True),
        ("", "", True),
        ("a\nb\n", "a\n", False),
        ("a\n", "", False),
        ("", "a\n", False),
        ("ab\n", "a.\n", False),
        ("a\nc\n", "a\n...\nb\n", False),
    ],
)
def test_an_output_agrees_only_with_what_is_shown(output: str, shown: str, same: bool) -> None:
    assert agrees(output, shown) is same


def test_blocks_know_their_file() -> None:
    page = (
        "Write `a/b.toml`:\n\n```toml\nx = 1\n```\n\n"
        "In `c.py`:\n\n```diff\n-a\n+b\n```\n\n```diff\n c\n```\n\n"
        "So:\n\n````md\n```x\n````\n"
    )
    found = [(block.language, block.path, block.text, block.line) for block in blocks(page)]
    assert found == [
        ("toml", "a/b.toml", "x = 1\n", 3),
        ("diff", "c.py", "-a\n+b\n", 9),
        ("diff", "c.py", " c\n", 14),
        ("md", "", "```x\n", 20),
    ]


def test_a_change_that_fits_nowhere_or_twice_is_refused() -> None:
    assert changed("a\nb\nc\n", " a\n-b\n+B\n") == "a\nB\nc\n"
    for text in ("x\n", "b\nb\n"):
        with pytest.raises(ValueError, match="times in the file"):
            changed(text, "-b\n+B\n")


def test_commands_go_on_after_a_backslash() -> None:
    found = [(one.typed, one.shown) for one in commands("$ a \\\n  b\nout\n$ c\n")]
    assert found == [("a \\\n  b", "out\n"), ("c", "")]
