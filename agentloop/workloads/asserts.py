"""Assert statements as tests: calls where inputs and values are plain data, scripts where not.

A call carries its input only, so it can be compared outside the sandbox and its failure can be shown as input, expected
and got. The rewriting changes no verdict: each form becomes a checker that means the same (see `agentloop.compare`).
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Sequence
from typing import Any

from agentloop.plain import Unplain, encode
from agentloop.types import Json, Test
from agentloop.workloads.literals import NotLiteral, evaluate

_Check = tuple[ast.expr, str, Any]
"""call, checker, expected value"""


def call_test(id: str, condition: ast.expr, function: str, *, show: str, alias: str = "") -> Test | None:
    """The condition of an assert as a `call` test of `function`, None when it is no single call on plain data.

    `alias` is a name that stands for the function (HumanEval's `candidate`).
    """
    names = {function, alias}
    try:
        found = _check(condition, names)
        if found is None:
            return None
        call, checker, value = found
        assert isinstance(call, ast.Call)
        args = [encode(evaluate(arg)) for arg in call.args]
        kwargs = {keyword.arg: encode(evaluate(keyword.value)) for keyword in call.keywords if keyword.arg}
        expected: dict[str, Json] | None = None if checker in ("truthy", "falsy") else {"value": encode(value)}
    except (NotLiteral, Unplain):
        return None
    if len(kwargs) < len(call.keywords):
        return None
    return Test(id, "call", {"function": function, "args": args, "kwargs": kwargs}, expected, checker, show)


def script_test(id: str, code: str, function: str, *, show: str, in_process: bool = False) -> Test:
    """Code that calls the function and raises when unhappy. `in_process`: it needs the program's own objects."""
    if "random" in code:
        code = f"import random\nrandom.seed(0)\n{code}"  # the same inputs in each run
    checker = "in_process" if in_process else "script"
    return Test(id, "script", {"code": code, "function": function}, None, checker, show)


def test_id(index: int) -> str:
    """The id of a problem's test where the first is visible and the others are hidden: v1, h1, h2, ..."""
    return f"h{index}" if index else "v1"


def is_vacuous(statement: ast.stmt) -> bool:
    """Whether a statement tests nothing: `assert True`, or an expression such as a docstring or a lone name."""
    match statement:
        case ast.Assert(ast.Constant(value)):
            return bool(value)
        case ast.Expr(ast.Constant() | ast.Name()):
            return True
    return False


def needs_program(nodes: Sequence[ast.AST], function: str) -> bool:
    """Whether a script needs more of the program than calls of the function on plain data: its classes, or other types.

    That is so when a name is neither the function, nor bound in the script, nor a builtin, nor a standard module; or
    when a builtin type is handed over as an argument.
    """
    walked = [child for node in nodes for child in ast.walk(node)]
    bound = {node.id for node in walked if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {alias.asname or alias.name for node in walked if isinstance(node, ast.Import | ast.ImportFrom)
              for alias in node.names}  # fmt: skip
    bound |= {node.arg for node in walked if isinstance(node, ast.arg)}
    known = bound | {function} | set(dir(builtins)) | set(sys.stdlib_module_names)
    for node in walked:
        if isinstance(node, ast.Name) and node.id not in known:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            for arg in node.args:
                if isinstance(arg, ast.Name) and isinstance(getattr(builtins, arg.id, None), type):
                    return True
    return False


def modules_used(nodes: Sequence[ast.AST]) -> list[str]:
    """Standard modules that code uses by name (`sys.getsizeof`), sorted; some sets rely on the program's imports."""
    names = {
        node.value.id
        for each in nodes
        for node in ast.walk(each)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return sorted(names & set(sys.stdlib_module_names))


def _check(condition: ast.expr, names: set[str]) -> _Check | None:
    match condition:
        case ast.Compare(left, [op], [right]):
            if not _calls(left, names) and _calls(right, names) and isinstance(op, ast.Eq):
                left, right = right, left
            return _comparison(left, op, right, names)
        case ast.UnaryOp(ast.Not(), operand) if _is_call(operand, names):
            return operand, "falsy", None
        case ast.Call(ast.Attribute(ast.Name("math"), "isclose"), [call, value], keywords) if _is_call(call, names):
            given = {keyword.arg: evaluate(keyword.value) for keyword in keywords}
            if given.keys() <= {"rel_tol", "abs_tol"}:
                tolerances = f"{given.get('rel_tol', 1e-9)!r}:{given.get('abs_tol', 0.0)!r}"
                return call, f"isclose:{tolerances}", evaluate(value)
        case ast.Call() if _is_call(condition, names):
            return condition, "truthy", None
    return None


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, names: set[str]) -> _Check | None:
    match left, op:
        case _, ast.Eq() if _is_call(left, names):
            return left, "equal", evaluate(right)
        case _, ast.Is() if _is_call(left, names) and isinstance(right, ast.Constant):
            return left, "is", right.value
        case ast.Call(ast.Name("abs"), [ast.BinOp(call, ast.Sub(), value)], []), ast.Lt() if _is_call(call, names):
            return call, f"less:{float(evaluate(right))!r}", evaluate(value)
        case ast.Call(ast.Name("round"), [call, digits], []), ast.Eq() if _is_call(call, names):
            return call, f"equal:round:{int(evaluate(digits))}", evaluate(right)
        case ast.Call(ast.Name("tuple" | "list" | "set" | "sorted" | "int" as name), [call], []), ast.Eq() if _is_call(
            call, names
        ):
            return call, f"equal:{name}", evaluate(right)
    return None


def _is_call(node: ast.expr, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _calls(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(child, ast.expr) and _is_call(child, names) for child in ast.walk(node))
