"""Modules of pytest or unittest tests: one test of ours for each test function, inside the program's process.

Such tests hold live objects (classes, doubles, exceptions), so they cannot be kept apart from the program: their
verdicts carry `trust = in_process`. Each function runs in a process of its own, with the whole module before it.

unittest is the standard library's own. pytest is not in the sandbox, which has the standard library alone; to lay its
files into every lane would tie verdicts to the pytest of the machine, and add its start to every test. Its functions
and classes are run by `pytest_standin.py`, which has `raises`, `approx`, `mark.parametrize`, `param`, `fail`, `skip`.
What it lacks (fixtures, plugins, other marks) is refused when the problems are loaded, never at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, TypeGuard

from agentloop.types import Test

Style = Literal["pytest", "unittest"]
STANDIN = ("approx", "fail", "mark", "param", "raises", "skip")
"""Names of pytest that the stand-in has."""
MARKS = ("parametrize",)


def module_tests(style: Style, source: str, function: str, module: str = "solution", prefix: str = "t") -> list[Test]:
    """The tests of a module's source, in its order; ids are `PREFIX.name` or `PREFIX.Class.name`.

    `module`: under which name the tests import the program; its names are there without an import too. Raises
    `ValueError` for source that does not parse, holds no test, or needs what is not supported.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the test module does not parse: {error}") from error
    future, rest = _hoisted(tree, source)
    tree.body = [node for node in tree.body if not _is_main(node)]  # what runs a module as a script does not run here
    if style == "pytest":
        _refuse(tree)
    if lost := _lost(tree, style):
        raise ValueError(f"{lost} stands inside of something else, where it is not found: move it to the top level")
    if skipped := _skipped(tree):
        raise ValueError(f"{skipped} is always skipped, so no program can pass it: leave it out")
    tests = []
    for owner, name, lines in _functions(tree, style):
        path = [*([owner] if owner else []), name]
        head = f"{future}__name__ = 'tests'; import sys; sys.modules[{module!r}] = sys.modules['solution']; "
        head += "import random; random.seed(0); " if "random" in source else ""  # the same inputs in each run
        head += f"exec({_runner()!r}, _run := {{}}); sys.modules.setdefault('pytest', _run['pytest']); "
        head += "sys.modules['tests'] = _run['Module'](globals())"  # a dataclass looks its module up
        code = f"{_before(head, rest)}\n_run['run'](globals(), {owner!r}, {name!r})\n"
        show = "\n".join(source.splitlines()[lines.start : lines.stop])
        given = {"code": code, "function": function}
        tests.append(Test(".".join([prefix, *path]), "script", given, None, "in_process", show))
    if not tests:
        raise ValueError(f"the module holds no test of {style}")
    return tests


@cache
def _runner() -> str:
    return (Path(__file__).parent / "pytest_standin.py").read_text(encoding="utf-8")


def _hoisted(tree: ast.Module, source: str) -> tuple[str, str]:
    """Imports from `__future__`, which must come first of all, and the source without them, with its lines kept."""
    lines, found = source.splitlines(), ""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found += f"{ast.unparse(node)}; "
            for number in _lines(node):
                lines[number] = ""
    return found, "\n".join(lines)


def _before(head: str, source: str) -> str:
    """Source with statements before it, on its first line where they fit: then a traceback has the lines of the source.

    They fit in the place of a comment or nothing, and before a statement that is no block.
    """
    first, _, _ = source.partition("\n")
    if first.strip() == "" or first.startswith("#"):
        return head + source[len(first) :]
    start = ast.parse(source).body[0]
    block = hasattr(start, "body") or isinstance(start, ast.Match) or start.lineno > 1
    return f"{head}\n{source}" if block else f"{head}; {source}"


def _test_classes(tree: ast.Module, style: Style) -> dict[ast.stmt, list[ast.ClassDef]]:
    """The classes of tests, each with those of the module that it is made of, itself first."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def line(node: ast.ClassDef, above: tuple[ast.ClassDef, ...] = ()) -> list[ast.ClassDef]:
        bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        above = (*above, node)
        return [node, *(each for base in bases if base not in above for each in line(base, above))]

    def wanted(node: ast.ClassDef, made_of: list[ast.ClassDef]) -> bool:
        flags = [flag for each in made_of for flag in (True, False) if "__test__" in _set_to(each, flag)]
        if style == "pytest" and flags[:1] == [False]:
            return False
        return any(_holds_tests(node, each, style) for each in made_of)

    lines = {node: line(node) for node in classes.values()}
    return {node: made_of for node, made_of in lines.items() if wanted(node, made_of)}


def _holds_tests(node: ast.ClassDef, base: ast.ClassDef, style: Style) -> bool:
    """Whether a class is one of tests: by its name, or by the head of `base`, which it is made of or is itself."""
    cases = any(ast.unparse(each).endswith("TestCase") for each in base.bases)
    return cases or (style == "pytest" and node.name.startswith("Test"))


def _functions(tree: ast.Module, style: Style) -> Iterator[tuple[str, str, range]]:
    """(class or '', function, its lines) of every test, those that a class has of another class of the module too.

    Of two with one name the last holds, and a class that sets a test to None has it no more.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = _test_classes(tree, style)
    for node in tree.body:
        if node in classes:
            found: dict[str, range] = {}
            for each in reversed(classes[node]):
                found |= {item.name: _lines(item) for item in each.body if _is_test(item)}
                found = {name: lines for name, lines in found.items() if name not in _set_to(each, None)}
            owner = classes[node][0].name
            yield from ((owner, name, lines) for name, lines in found.items())
        elif style == "pytest" and _is_test(node) and functions[node.name] is node:
            yield "", node.name, _lines(node)


def _set_to(node: ast.ClassDef, value: object) -> list[str]:
    """Names that a class's body sets to this constant."""
    assigned = [each for each in node.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    return [ast.unparse(name) for each in assigned if ast.literal_eval(each.value) is value for name in each.targets]


def _lost(tree: ast.Module, style: Style) -> str:
    """A test in a block, or in a class of a test class, which would be passed over; or ''."""
    classes = {each for made_of in _test_classes(tree, style).values() for each in made_of}

    def inside(node: ast.stmt, *, block: bool, owned: bool) -> str:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return node.name if block and node.name.startswith("test") and (owned or style == "pytest") else ""
        if isinstance(node, ast.ClassDef):
            if node not in classes and not _holds_tests(node, node, style):
                return ""
            inner = [(each, block or owned) for each in node.body]
            owned = True
        else:
            inner = [(each, True) for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
        return next((name for each, deep in inner if (name := inside(each, block=deep, owned=owned))), "")

    return next((name for node in tree.body if (name := inside(node, block=False, owned=False))), "")


def _is_main(node: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`, without an `else`."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test"):
        raise ValueError(f"{node.name} is asynchronous, which is not supported")
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _lines(node: ast.stmt) -> range:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return range(first - 1, node.end_lineno or node.lineno)


def _refuse(tree: ast.Module) -> None:
    """Raise `ValueError` for what the stand-in cannot do."""
    called = {"pytest": "pytest"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "pytest":
            unknown = [alias.name for alias in node.names if alias.name not in STANDIN]
            if unknown:
                raise ValueError(f"pytest.{unknown[0]} is not supported (supported: {', '.join(STANDIN)})")
            called.update({alias.asname or alias.name: f"pytest.{alias.name}" for alias in node.names})
        if isinstance(node, ast.Import):
            called.update({alias.asname: "pytest" for alias in node.names if alias.name == "pytest" and alias.asname})
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        first, dot, others = ast.unparse(node.value).partition(".")
        owner_name = f"{called.get(first, first)}{dot}{others}"
        known = {"pytest": STANDIN, "pytest.mark": MARKS}.get(owner_name)
        if known and node.attr not in known:
            raise ValueError(f"{owner_name}.{node.attr} is not supported (supported: {', '.join(known)})")
    owners: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for owner in owners:
        if isinstance(owner, ast.ClassDef) and any(_parametrized(each) for each in owner.decorator_list):
            raise ValueError(f"{owner.name}: parametrize of a class is not supported: write it at each of its tests")
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
                given = {name for each in node.decorator_list for name in _parametrized(each)}
                needed = names[1 if isinstance(owner, ast.ClassDef) else 0 :][: -len(node.args.defaults) or None]
                only_named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                needed += [arg.arg for arg, default in only_named if default is None]
                missing = [name for name in needed if name not in given]
                if missing:
                    raise ValueError(f"{node.name} asks for the fixture {missing[0]!r}: fixtures are not supported")


def _skipped(tree: ast.Module) -> str:
    """The first test function or class that `unittest.skip` decorates, or ''."""
    skips = {"unittest.skip"}
    for node in tree.body:
        if isinstance(node, ast.Import):
            skips.update(f"{alias.asname}.skip" for alias in node.names if alias.name == "unittest" and alias.asname)
        if isinstance(node, ast.ImportFrom) and node.module == "unittest":
            skips.update(alias.asname or alias.name for alias in node.names if alias.name == "skip")
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for each in (each for each in (node, *inner) if isinstance(each, ast.ClassDef | ast.FunctionDef)):
            for decorator in each.decorator_list:
                if ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator) in skips:
                    return each.name
    return ""


def _parametrized(decorator: ast.expr) -> list[str]:
    match decorator:
        case ast.Call(ast.Attribute(_, "parametrize"), [ast.Constant(str(names)), *_]):
            return [name.strip() for name in names.split(",")]
        case ast.Call(ast.Attribute(_, "parametrize"), [ast.Tuple(elts) | ast.List(elts), *_]):
            return [each.value for each in elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return []
