"""The catalog: how a name becomes a strategy, a feedback style or a sandbox profile.

Policy is addressed, not imported: an entry is one file (a style: one folder), found by path if the spec looks like one,
else by built-in name, else by entry point (`agentloop.graphs`, `agentloop.feedback_templates`, `agentloop.sandboxes`),
which is loaded only when asked for. Each entry's content digest goes into the run's manifest. Two owners of one name
are an error that names both. This is the one module that looks for files.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from agentloop.errors import UserError, missing, unknown_name
from agentloop.feedback import Template, parse_template
from agentloop.hashing import digest, text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from langgraph.graph import StateGraph

Kind = Literal["graphs", "feedback_templates", "sandboxes"]
_SUFFIX: dict[str, str] = {"graphs": ".py", "feedback_templates": "", "sandboxes": ".toml"}
_STYLE_KEYS: dict[str, type] = {"description": str, "tags_first": bool, "settings": dict}
_WORD: dict[str, str] = {"graphs": "strategy", "feedback_templates": "feedback style", "sandboxes": "sandbox profile"}


@lru_cache(maxsize=1)
def root() -> Path:
    """Where the built-in catalog folders stand: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parent / "_catalog"
    checkout = Path(__file__).parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "graphs").is_dir():
        return checkout
    return packaged


def names(kind: Kind) -> dict[str, Path | str]:
    """Known names of a kind: built-in files by path, entry points by their `module:attr`."""
    suffix = _SUFFIX[kind]
    found: dict[str, Path | str] = {}
    for path in sorted((root() / kind).iterdir()):
        if path.name.startswith((".", "_")) or (path.is_dir() if suffix else not path.is_dir()):
            continue
        if path.suffix == suffix:
            found[path.stem] = path
    for name, value in _entries(kind):
        if name in found:
            raise UserError(f"two owners of {_WORD[kind]} {name!r}: {found[name]} and {value}")
        found[name] = value
    return found


@lru_cache
def _entries(kind: Kind) -> tuple[tuple[str, str], ...]:
    # Kept: looking through all installed distributions takes as long as loading a style.
    return tuple((entry.name, entry.value) for entry in entry_points(group=f"agentloop.{kind}"))


def placed(spec: str, base: Path | None = None) -> Path:
    """The path that a spec means: `~` is a home folder, a relative one starts from `base`. Raises `UserError`."""
    try:
        return (base or Path.cwd()) / Path(spec).expanduser()
    except RuntimeError as error:
        raise UserError(f"{spec}: {error}") from error


def find(kind: Kind, spec: str, base: Path | None = None, frozen: Path | None = None) -> Path:
    """The file (style: folder) that a spec means. A spec with a suffix or a slash is a path, relative to `base`.

    `frozen` is a run's own copy of the catalog: only it is looked at then.
    Raises `UserError` with what was tried and the nearest known name.
    """
    suffix = _SUFFIX[kind]
    if frozen is not None:
        copy = frozen / kind / (Path(spec).stem + suffix if suffix else Path(spec).name)
        if not copy.exists():
            raise UserError(f"{_WORD[kind]} {spec!r}: the run keeps no copy {copy}")
        return copy
    if "/" in spec or (suffix and spec.endswith(suffix)):
        path = placed(spec, base)
        if not path.exists():
            raise missing(f"{_WORD[kind]} {spec!r}: no such file {path}", path, _near(kind, spec, base))
        return path.resolve()
    known = names(kind)
    if spec not in known:
        own = [path for path in _near(kind, spec, base) if path.stem == spec]
        raise unknown_name(_WORD[kind], spec, known, str(own[0]) if own else "")
    owner = known[spec]
    if isinstance(owner, Path):
        return owner
    module = importlib.util.find_spec(owner.partition(":")[0])
    if module is None or module.origin is None:
        raise UserError(f"{_WORD[kind]} {spec!r}: entry point {owner} names a module that is not installed")
    origin = Path(module.origin)
    return origin if suffix == ".py" else origin.parent / spec


def _near(kind: Kind, spec: str, base: Path | None) -> list[Path]:
    """The user's own files of a kind (styles: folders) where they are wont to stand, by paths that may be typed."""
    base = base or Path.cwd()
    found: list[Path] = []
    for folder in (placed(spec, base).parent, base / kind, base):
        with suppress(OSError):  # not there, or not to be read: then nothing of it is known
            found += sorted(folder.iterdir())
    suffix = _SUFFIX[kind]
    found = [path for path in found if (path.suffix == suffix if suffix else any(path.glob("*.j2")))]
    return [path.relative_to(base) if path.is_relative_to(base) else path for path in found]


def sandbox_spec(spec: str, base: Path) -> str:
    """What `open_sandbox` takes: a backend's word as it is, else the path of the profile. Raises `UserError`."""
    from agentloop.sandbox import SPECS

    return spec if spec in SPECS else str(find("sandboxes", spec, base))


@dataclass(frozen=True)
class Style:
    """A feedback style: its templates by stem, and the defaults it sets for strategies' settings."""

    name: str
    folder: Path
    templates: Mapping[str, Template]
    settings: Mapping[str, Any]
    description: str
    tags_first: bool
    """Programs are asked for between tags (`[code]`), so tags count before fences where a reply has both."""
    text: str
    """Of style.toml; empty where there is none."""


def load_style(spec: str, base: Path | None = None, frozen: Path | None = None) -> Style:
    """A style with every template parsed and checked. Raises `UserError` with template and fault."""
    folder = find("feedback_templates", spec, base, frozen)
    front: dict[str, Any] = {}
    path, text = folder / "style.toml", ""
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
            front = tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"{path}: {error}") from error
        for key, value in front.items():
            if key not in _STYLE_KEYS:
                raise unknown_name(f"key of {path}", key, _STYLE_KEYS)
            if not isinstance(value, _STYLE_KEYS[key]):
                raise UserError(f"{path}: {key} = {value!r} is no {_STYLE_KEYS[key].__name__}")
    templates = {}
    for path in sorted(folder.glob("*.j2")):
        templates[path.stem] = parse_template(f"{folder.name}/{path.stem}", path.read_text(encoding="utf-8"))
    if not templates:
        raise UserError(f"feedback style {spec!r}: {folder} holds no .j2 file")
    settings, description = front.get("settings", {}), front.get("description", "")
    return Style(folder.name, folder, templates, settings, description, front.get("tags_first", False), text)


@dataclass
class Kit:
    """What `build` is given: templates by style and other strategies by name, each use noted for the manifest."""

    base: Path | None = None
    frozen: Path | None = None
    files: dict[str, str] = field(default_factory=dict)
    """`strategy:NAME`, `style:STYLE` and `template:STYLE/STEM` of everything used -> the file's text ('': no file)."""
    styles: dict[str, Style] = field(default_factory=dict)
    """Styles loaded so far; kits of one plan share it, as their paths start from one `base`."""
    sketch: bool = False
    """The graph is only looked at: a template that the style lacks is an empty one."""

    def style(self, spec: str) -> Style:
        """A style, loaded once. Raises `UserError`."""
        if spec not in self.styles:
            self.styles[spec] = load_style(spec, self.base, self.frozen)
        style = self.styles[spec]
        self.files[f"style:{style.name}"] = style.text
        return style

    def template(self, style: str, name: str) -> Template:
        """A template of a style. Raises `UserError` naming what the style has."""
        loaded = self.style(style)
        if name not in loaded.templates:
            if self.sketch:
                return Template(f"{loaded.name}/{name}", "", (), "", "")
            raise unknown_name(f"template of style {style!r}", name, loaded.templates)
        template = loaded.templates[name]
        self.files[f"template:{template.name}"] = template.text
        return template

    def strategy(self, spec: str, **settings: Any) -> StateGraph[Any, Any, Any, Any]:
        """Another strategy's graph with these settings, for wrappers."""
        return load_strategy(spec, self.base, self.frozen).graph(self, settings)


@dataclass(frozen=True)
class Strategy:
    """A strategy file: `build(kit, *, ...)` returns a `StateGraph`; its keyword arguments are the settings."""

    name: str
    path: Path
    text: str
    build: Callable[..., StateGraph[Any, Any, Any, Any]]
    description: str
    oracle: bool
    """The file says `ORACLE = True`: it sees hidden verdicts and is watermarked in every table."""

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return text_digest(self.text)

    def settings(self) -> dict[str, inspect.Parameter]:
        """The settings it takes, by name."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter for parameter in parameters}

    def choices(self) -> dict[str, tuple[Any, ...]]:
        """The values of each setting that is one of a few, by name: those of the `Literal` in its annotation."""
        found = {}
        hints = inspect.get_annotations(self.build, eval_str=True)
        for key in self.settings():
            hint = hints.get(key)
            literals = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
            if literals:
                found[key] = get_args(literals[0])
        return found

    def resolve(self, given: Mapping[str, Any], kit: Kit) -> dict[str, Any]:
        """Every setting's value: given ones, else the style's, else the signature's. Raises `UserError`."""
        from pydantic import TypeAdapter, ValidationError

        known = self.settings()
        for key in given:
            if key not in known:
                raise unknown_name(f"setting of strategy {self.name!r}", key, known)
        values = {key: parameter.default for key, parameter in known.items()}
        style = given.get("style", values.get("style"))
        if isinstance(style, str):
            values.update({key: value for key, value in kit.style(style).settings.items() if key in known})
        values.update(given)
        try:
            hints = inspect.get_annotations(self.build, eval_str=True)
        except Exception as error:
            raise UserError(
                f"strategy {self.name!r}: an annotation of build: {type(error).__name__}: {error}"
            ) from error
        for key, value in values.items():
            if value is inspect.Parameter.empty:
                raise UserError(f"strategy {self.name!r} needs setting {key!r}")
            hint = hints.get(key, Any)
            try:
                values[key] = TypeAdapter(hint).validate_python(value)
            except ValidationError as error:
                fault = error.errors()[0]["msg"]
                raise UserError(f"strategy {self.name!r}, setting {key} = {value!r}: {fault}") from error
        return values

    def graph(self, kit: Kit, given: Mapping[str, Any]) -> StateGraph[Any, Any, Any, Any]:
        """The graph with these settings, uncompiled. Raises `UserError`."""
        kit.files[f"strategy:{self.name}"] = self.text
        return self.build(kit, **self.resolve(given, kit))


def load_strategy(spec: str, base: Path | None = None, frozen: Path | None = None) -> Strategy:
    """The strategy of a name or path. Raises `UserError`; a fault inside the file keeps its traceback as the cause."""
    path = find("graphs", spec, base, frozen)
    try:
        text = path.read_text(encoding="utf-8")
        module = _module(path, text)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a file that exits would end the command as if all were well
        raise UserError(f"strategy {spec!r}: {path} cannot be loaded: {type(error).__name__}: {error}") from error
    build = getattr(module, "build", None)
    if not callable(build):
        raise UserError(f"strategy {spec!r}: {path} has no function build(kit, *, ...)")
    description = (module.__doc__ or "").strip().partition("\n")[0]
    return Strategy(path.stem, path, text, build, description, bool(getattr(module, "ORACLE", False)))


def _module(path: Path, text: str) -> ModuleType:
    # In sys.modules under a name of its content before it runs: dataclasses under postponed annotations need it there.
    name = f"agentloop_graph_{path.stem}_{digest([str(path), text])[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
