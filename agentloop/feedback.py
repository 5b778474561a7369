"""Feedback templates: strict Jinja with declared fields.

A template is one `.j2` file that begins with TOML front matter between two `+++` lines:

    +++
    description = "what the model is told, and when"
    fields = ["statement", "program", "test"]
    +++
    Your program ...

Only declared fields can be used, and every declared field must be one that the loop can give (`FIELDS`); both are
checked when the template is loaded, before a token is spent. Filters beside Jinja's own: `last_lines(n)`,
`last_chars(n)`. Templates of one style live in one folder, one per outcome (`failed.j2`, `timeout.j2`, ...) or role
(`task.j2`, `explain.j2`); the style's own defaults for a strategy's settings stand in `style.toml` of that folder.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentloop.errors import UserError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jinja2

FIELDS: dict[str, str] = {
    "statement": "the problem as given to the model",
    "language": "the language of the program",
    "entry_point": "name of the function to write, empty for stdin programs",
    "interface": "function or stdio",
    "example": "one visible test as text, for statements that name no function",
    "program": "the candidate that did not pass",
    "outcome": "its outcome",
    "detail": "exception name, signal, limit, ...",
    "test": "the first visible test that did not pass, as text",
    "got": "what that test got: a value, stdout, or the traceback",
    "expected": "what it should have got, as text",
    "report": "all visible tests that did not pass, one after the other, with what they got",
    "passed": "number of visible tests that passed",
    "total": "number of visible tests",
    "limits": "limits in force: cpu seconds, memory in MiB",
    "iteration": "number of candidates so far",
    "repeated": "true if this candidate repeats an earlier one",
    "feedback": "the outcome's feedback, for the frame of a fresh repair prompt",
    "explanation": "what the explaining role wrote",
    "reflections": "list of reflections so far",
}
"""Every field a template may declare, with its meaning."""

_FENCE = "+++"


@dataclass(frozen=True)
class Template:
    """One feedback template. `name` is `style/stem`, `text` the whole file, `body` what follows the front matter."""

    name: str
    text: str
    fields: tuple[str, ...]
    description: str
    body: str

    @cached_property
    def _compiled(self) -> jinja2.Template:
        return _environment().from_string(self.body)

    def render(self, values: Mapping[str, Any]) -> str:
        """The text for the model. Raises `UserError` if a declared field is not given or the template fails."""
        missing = [name for name in self.fields if name not in values]
        if missing:
            raise UserError(
                f"template {self.name}: field {missing[0]!r} is declared but not known at this point of the loop"
            )
        try:
            return self._compiled.render({name: values[name] for name in self.fields}).strip() + "\n"
        except Exception as error:  # whatever an expression can raise: it is the template's
            raise UserError(f"template {self.name} cannot be rendered: {type(error).__name__}: {error}") from error


def _environment() -> jinja2.Environment:
    import jinja2

    # A sandboxed environment: a template is text from somebody else's study, it must not reach into Python.
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["last_lines"] = lambda text, count: "\n".join(str(text).splitlines()[-count:])
    environment.filters["last_chars"] = lambda text, count: str(text)[-count:]
    return environment


def parse_template(name: str, text: str) -> Template:
    """A template from its file's text. Raises `UserError` with the template's name and the fault."""
    import jinja2
    from jinja2 import meta

    head, fence, rest = text.removeprefix(_FENCE + "\n").partition(f"\n{_FENCE}\n")
    if not text.startswith(_FENCE + "\n") or not fence:
        raise UserError(f"template {name}: it must begin with TOML front matter between two +++ lines (fields = [...])")
    try:
        front = tomllib.loads(head)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"template {name}: front matter is not TOML: {error}") from error
    for key in front:
        if key not in ("fields", "description"):
            raise unknown_name(f"front matter key of template {name}", key, ("fields", "description"))
    fields = tuple(front.get("fields", ()))
    for field in fields:
        if field not in FIELDS:
            raise unknown_name(f"field of template {name}", str(field), FIELDS)
    try:
        used = meta.find_undeclared_variables(_environment().parse(rest))
        template = Template(name, text, fields, str(front.get("description", "")), rest)
        _ = template._compiled
    except jinja2.TemplateSyntaxError as error:
        line = (error.lineno or 0) + head.count("\n") + 3
        raise UserError(f"template {name}, line {line}: {error.message}") from error
    for field in sorted(used):
        if field not in fields:
            known = fields if field in FIELDS else FIELDS
            extra = f"; add it to fields in the front matter of {name}" if field in FIELDS else ""
            raise UserError(f"{unknown_name(f'field used in template {name}', field, known)}{extra}")
    return template
