"""Templates: strict, with declared fields; every shipped style is whole."""

from __future__ import annotations

import pytest

from agentloop.catalog import Kit, load_style, names
from agentloop.errors import UserError
from agentloop.feedback import FIELDS, parse_template
from agentloop.types import REPAIRABLE


def _template(body: str, fields: str = '["program"]') -> str:
    return f'+++\ndescription = "d"\nfields = {fields}\n+++\n{body}\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no front matter", "front matter between two"),
        ("+++\nfields = [\n+++\nx\n", "not TOML"),
        ("+++\nfeilds = []\n+++\nx\n", "did you mean 'fields'"),
        (_template("x", '["porgram"]'), "did you mean 'program'"),
        (_template("{{ porgram }}"), "did you mean 'program'"),
        (_template("{{ expected }}"), "add it to fields"),
        (_template("{% if program %}"), "line 5"),
    ],
)
def test_a_bad_template_is_named_before_anything_is_spent(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        parse_template("mine/failed", text)
    assert "mine/failed" in str(caught.value)


def test_rendering_is_strict_and_cannot_reach_into_python() -> None:
    template = parse_template("mine/failed", _template("{{ program.__class__.__mro__ }}"))
    with pytest.raises(Exception, match="unsafe"):
        template.render({"program": "x"})
    with pytest.raises(UserError, match="declared but not known"):
        template.render({})


def test_truncation_filters() -> None:
    template = parse_template("mine/failed", _template("{{ program | last_lines(2) | last_chars(5) }}"))
    assert template.render({"program": "one\ntwo\nthree"}) == "three\n"
    template = parse_template("mine/failed", _template("{{ program | last_lines(2) }}"))
    assert template.render({"program": "one\ntwo\nthree"}) == "two\nthree\n"


@pytest.mark.parametrize("style", sorted(names("feedback_templates")))
def test_every_style_has_a_template_for_every_outcome_and_renders(style: str) -> None:
    loaded = load_style(style)
    assert {*REPAIRABLE, "task", "frame", "nudge"} <= set(loaded.templates)
    values = dict.fromkeys(FIELDS, "text") | {"reflections": ["a", "b"], "passed": 1, "total": 2}
    for template in loaded.templates.values():
        assert template.description
        assert template.render(values).strip()


def test_codeassay_cuts_the_report_to_80_lines_then_1200_characters() -> None:
    template = Kit().template("codeassay", "failed")
    report = "\n".join(f"line {number:04} " + "." * 5 for number in range(500))
    text = template.render({"report": report, "outcome": "failed", "detail": ""})
    assert text == report[-1200:].strip() + "\n"
    short = "\n".join(str(number) for number in range(100))
    assert template.render({"report": short, "outcome": "", "detail": ""}).split() == [str(n) for n in range(20, 100)]


def test_an_unknown_style_or_template_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'default'"):
        load_style("defualt")
    with pytest.raises(UserError, match="did you mean 'failed'"):
        Kit().template("default", "faled")
