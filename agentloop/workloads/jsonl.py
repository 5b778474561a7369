"""Our own format of problems: one JSON object a line, no code. Documented in `docs/reference/jsonl.md`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from difflib import get_close_matches
from keyword import iskeyword
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from agentloop.compare import text_agrees, users_checker, value_agrees
from agentloop.errors import UserError, unknown_name
from agentloop.plain import to_source
from agentloop.program import parse
from agentloop.types import LANGUAGES, Json, Limits, Problem, Suite, Test, backstop, memory_fault
from agentloop.workloads.asserts import call_test, script_test
from agentloop.workloads.checked import plain_fault
from agentloop.workloads.records import data_file, read_records
from agentloop.workloads.testcode import module_tests


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TestRecord(_Model):
    """One test: exactly one of `stdout` (with `stdin`), `args` (with `kwargs` and `value`), `assert`, `script`.

    Or a module of tests, `pytest` or `unittest` (with `module`), each function of which becomes a test.
    """

    __test__ = False

    id: str | None = None
    stdin: str = ""
    stdout: str | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)
    value: Any = None
    condition: str | None = Field(default=None, alias="assert")
    script: str | None = None
    in_process: bool = False
    pytest: str | None = None
    unittest: str | None = None
    module: str = "solution"
    checker: str | None = None
    show: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> TestRecord:
        given = self.model_fields_set
        kinds = given & set(_FIELDS)
        if len(kinds) != 1:
            raise ValueError("a test has exactly one of stdout, args, assert, script, pytest, unittest")
        allowed = {"id", "show", *_FIELDS[next(iter(kinds))]}
        if given - allowed:
            kind = next(iter(kinds)).replace("condition", "assert")
            fit = ", ".join(sorted(allowed - kinds))
            raise ValueError(f"{', '.join(sorted(given - allowed))} does not go with {kind}; what does: {fit}")
        return self


_FIELDS = {
    "stdout": ("stdin", "stdout", "checker"),
    "args": ("args", "kwargs", "value", "checker"),
    "condition": ("condition",),
    "script": ("script", "in_process"),
    "pytest": ("pytest", "module"),
    "unittest": ("unittest", "module"),
}


_CHECKERS = {
    "stdio": ("text", "exact", "tokens", "float", "FILE.py"),
    "call": ("equal", "close", "json", "evalplus", "match", "less", "isclose", "is", "truthy", "falsy"),
}
_TOLERANCES = {
    "float": "float:TOL", "close": "close:TOL, such as close:1e-9", "less": "less:TOL", "evalplus": "evalplus:TOL",
    "isclose": "isclose:REL:ABS",
}  # fmt: skip
_OBJECT = '; a dict is written {"dict": [[key, value], ...]}'


class LimitsRecord(_Model):
    """What differs from the default limits of a test: seconds and bytes."""

    cpu: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    wall: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory: int | None = None
    output: int | None = Field(default=None, gt=0)
    processes: int | None = Field(default=None, gt=0)
    file_size: int | None = Field(default=None, gt=0)
    open_files: int | None = Field(default=None, gt=0)

    @field_validator("memory")
    @classmethod
    def _enough(cls, memory: int | None) -> int | None:
        if memory is not None and (fault := memory_fault(memory)):
            raise ValueError(fault)
        return memory


class ProblemRecord(_Model):
    """One line of the file. With `entry_point` the program is a function, without it reads stdin and writes stdout."""

    id: str = Field(min_length=1)
    statement: str = Field(min_length=1)
    language: str = "python"
    entry_point: str | None = None
    hidden: list[TestRecord] = Field(min_length=1)
    visible: list[TestRecord] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)
    prelude: str = ""
    stub: str = ""
    limits: LimitsRecord = LimitsRecord()

    @field_validator("language")
    @classmethod
    def _known_language(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(unknown_name("language", language, LANGUAGES))
        return language

    @field_validator("entry_point")
    @classmethod
    def _function(cls, name: str | None, info: ValidationInfo) -> str | None:
        language = info.data.get("language", "python")
        if name and language != "python":
            raise ValueError(f"a program in {language} reads stdin and writes stdout: it has no entry_point")
        if name and (not name.isidentifier() or iskeyword(name)):
            called = re.match(r"(?:def\s+)?(\w+)\s*\(", name)
            hint = f": write {called[1]!r}" if called else ""
            raise ValueError(f"{name!r} is not the name of a function{hint}")
        return name


def load(data: Path | None) -> list[Problem]:
    """All problems of a file. Raises `UserError` naming line and field of the first record that is wrong."""
    data, problems = data_file("jsonl", data, "PROBLEMS.jsonl"), []
    places: dict[str, str] = {}
    for place, record in read_records(data):
        try:
            parsed = ProblemRecord.model_validate(record)
        except ValidationError as error:
            raise UserError(f"{place}: {_explain(error)}") from error
        if parsed.id in places:
            raise UserError(f"{place}: field 'id': {parsed.id!r} is the id of {places[parsed.id]} too")
        places[parsed.id] = place
        problems.append(_problem(place, parsed, data.name.partition(".")[0], data.parent))
    return problems


def _goes_on(stub: str) -> bool:
    """Whether Python source can be gone on with: it parses, or does so with what its last line wants."""
    last = stub.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    ends = ("", "    pass", "pass", "    pass\n{}finally: pass", "    case _: pass", "def f(): pass")
    return any(parse(f"{stub.rstrip()}\n{indent}{end.format(indent)}") for end in ends)


def _explain(error: ValidationError) -> str:
    """The first fault of a record; a misspelt field comes before one that is missing, which may be what was meant."""
    faults = error.errors(include_url=False)
    fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        inner: dict[int | str, type[_Model]] = {"limits": LimitsRecord, "visible": TestRecord, "hidden": TestRecord}
        part = inner[fault["loc"][0]] if len(fault["loc"]) > 1 else ProblemRecord
        fields = [field.alias or name for name, field in part.model_fields.items()]
        near = get_close_matches(str(fault["loc"][-1]).lower(), fields, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
        message = f"is no field of this format: {hint}"
    return f"field {_path(fault['loc'])!r}: {message}"


def _path(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "record"


def _problem(place: str, record: ProblemRecord, workload: str, folder: Path) -> Problem:
    limits = record.limits.model_dump(exclude_none=True)
    if record.limits.cpu and record.limits.wall is None:
        limits["wall"] = backstop(record.limits.cpu)
    suites: dict[Literal["visible", "hidden"], Suite] = {}
    names: tuple[Literal["visible", "hidden"], ...] = ("visible", "hidden")
    if record.language == "python" and parse(record.prelude) is None:
        raise UserError(f"{place}: field 'prelude' is no Python: nothing of it could be put before a program")
    if record.language == "python" and not _goes_on(record.stub):
        raise UserError(f"{place}: field 'stub' is no Python, with a body behind it or without: no completion goes on")
    for name in names:
        tests: list[Test] = []
        for index, test in enumerate(getattr(record, name)):
            try:
                if record.language != "python" and test.stdout is None:
                    raise ValueError(f"a program in {record.language} has stdio tests only: stdin and stdout")
                tests += _tests(test, test.id or f"{name[0]}{index + 1}", record.entry_point, folder)
            except ValueError as error:
                raise UserError(f"{place}: field '{name}[{index}]': {error}") from error
        for id, count in Counter(test.id for test in tests).items():
            if count > 1:
                raise UserError(f"{place}: field {name!r}: two tests have one id, {id!r}")
        suites[name] = Suite(name, tuple(tests))
    return Problem(
        id=record.id,
        workload=f"jsonl:{workload}",
        statement=record.statement,
        interface="function" if record.entry_point else "stdio",
        visible=suites["visible"],
        hidden=suites["hidden"],
        language=record.language,
        entry_point=record.entry_point,
        prelude=record.prelude,
        stub=record.stub,
        references=tuple(record.references),
        limits=Limits(**limits),
    )


def _tests(record: TestRecord, id: str, entry: str | None, folder: Path) -> list[Test]:
    styles: tuple[Literal["pytest", "unittest"], ...] = ("pytest", "unittest")
    for style in styles:
        if (source := getattr(record, style)) is not None:
            if not entry:
                raise ValueError("a test that imports the program needs the problem's entry_point")
            return module_tests(style, source, entry, record.module, id)
    return [_test(record, id, entry, folder)]


def _test(record: TestRecord, id: str, entry: str | None, folder: Path) -> Test:
    if record.stdout is not None:
        if entry:
            raise ValueError("a test on stdout needs a problem without entry_point")
        checker = record.checker or "text"
        if checker.endswith(".py"):
            checker = _users_own(folder / checker)
        else:
            _known(checker, "stdio", lambda: text_agrees(checker, "", ""))
        show = f"stdin:\n{record.stdin}\nstdout:\n{record.stdout}"
        return Test(id, "stdio", {"stdin": record.stdin}, {"stdout": record.stdout}, checker, record.show or show)
    if not entry:
        raise ValueError("a test that calls a function needs the problem's entry_point")
    if record.args is not None:
        return _call(record, record.args, id, entry)
    if record.script is not None:
        show = record.show or record.script
        try:
            ast.parse(record.script)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"the script does not parse: {_told(error)}") from error
        return script_test(id, record.script, entry, show=show, in_process=record.in_process)
    source = (record.condition or "").strip()
    show = record.show or f"assert {source}"
    try:
        condition = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        hint = ": leave out the word assert" if re.match(r"assert\b", source) else ""
        raise ValueError(f"assert is no Python expression{hint}: {_told(error)}") from error
    if not any(isinstance(node, ast.Name) and node.id == entry for node in ast.walk(condition)):
        raise ValueError(f"assert does not call {entry}: it says nothing of a program")
    return call_test(id, condition, entry, show=show) or script_test(id, f"assert {source}", entry, show=show)


def _told(error: Exception) -> str:
    return f"{error.msg} (line {error.lineno})" if isinstance(error, SyntaxError) else str(error)


def _users_own(path: Path) -> str:
    """A checker of the user's: its source is part of the test, so that a change of it is a change of the problem."""
    try:
        source = path.read_text(encoding="utf-8")
        users_checker(source)
    except OSError as error:
        raise ValueError(f"checker {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"checker {path}: {error}") from error
    return f"python:{source}"


def _known(checker: str, kind: str, trial: Callable[[], bool]) -> None:
    """Refuse a checker that does not exist or lacks its number, before anything runs."""
    name, _, parameter = checker.partition(":")
    ours = _CHECKERS[kind]
    other = next((other for other, known in _CHECKERS.items() if name in known), kind)
    if other != kind:
        raise ValueError(f"checker {checker!r} is for {other} tests; for {kind} tests: {', '.join(ours)}")
    if name not in ours:
        raise ValueError(unknown_name("checker", checker, ours))
    try:
        numbers = [float(part) for part in parameter.split(":")] if name in _TOLERANCES else []
        trial()
    except ValueError as error:
        form = f": write {_TOLERANCES[name]}" if name in _TOLERANCES else ""
        told = error if parameter or not form else "it lacks its number"
        raise ValueError(f"checker {checker!r}: {told}{form}") from error
    if ":" in checker and name not in (*_TOLERANCES, "equal"):
        raise ValueError(f"checker {checker!r}: write {name} alone, it takes no number")
    if not all(number >= 0 for number in numbers):
        raise ValueError(f"checker {checker!r}: a tolerance is not below 0")


def _call(record: TestRecord, args: list[Json], id: str, entry: str) -> Test:
    checker = record.checker or "equal"
    valued = checker not in ("truthy", "falsy")
    if valued != ("value" in record.model_fields_set):
        raise ValueError(f"checker {checker!r} {'needs a' if valued else 'takes no'} value")
    _known(checker, "call", lambda: value_agrees(checker, 0, 0))
    if checker == "is" and not (record.value is None or isinstance(record.value, bool)):
        raise ValueError("checker 'is' has null, true or false as its value")
    for part in (args, *record.kwargs.values(), record.value):
        if fault := plain_fault(part):
            hint = _OBJECT if fault.startswith("not plain data") else ""
            raise ValueError(f"{fault}{hint}")
    named = [f"{name}={to_source(part)}" for name, part in record.kwargs.items()]
    call = f"{entry}({', '.join([*map(to_source, args), *named])})"
    if checker == "equal":
        show = f"assert {call} == {to_source(record.value)}"
    elif valued:
        show = f"{call} gives {to_source(record.value)} (checker {checker})"
    else:
        show = f"assert {call}" if checker == "truthy" else f"assert not {call}"
    input = {"function": entry, "args": args, "kwargs": record.kwargs}
    return Test(id, "call", input, {"value": record.value} if valued else None, checker, record.show or show)
