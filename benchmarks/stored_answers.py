"""Does extraction lose programs? Every stored raw answer of others, through `agentloop.extract`.

    python benchmarks/stored_answers.py [--data DIR] [--sandbox docker] [SET ...]

First each raw answer is extracted from: none may raise, and the slowest are named with their milliseconds of CPU. Then
the answers that their makers found right, with the program that they took out of them: where ours is another program
(another syntax tree), both are judged, if the tests are here (HumanEval, MBPP); an answer is lost when theirs passes
and ours does not. Prints one JSON object a set.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import gzip
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentloop.extract import extract
from agentloop.judging import judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.types import Problem, Suite
from agentloop.workloads import load

DATA = Path(os.environ.get("AGENTLOOP_DATA", Path(__file__).parents[2] / "shared" / "data"))
LANGUAGES = {"cpp": "cpp", "java": "java", "rust": "rust", "rs": "rust", "c": "c"}
"""Names of theirs for languages that are known here; answers in others are read as Python."""
IMPORTS = "import collections, heapq, itertools, math, re\nfrom typing import *\n"
"""The makers put such imports before a program."""


def records(data: Path, name: str) -> Iterator[dict[str, Any]]:
    """The records of a set."""
    with gzip.open(data / "llm_outputs" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def problem_of(record: dict[str, Any], known: dict[str, Problem]) -> Problem:
    """The problem that an answer was given to, or one of which only the language is known."""
    if found := known.get(problem_id(record)):
        return found
    nothing = Suite("visible", ())
    language = LANGUAGES.get(record["language"], "python")
    # can-ai-code's tasks name a function, which stands in their own program only.
    named = (
        re.search(r"^def (\w+)", (record["codes"] or [""])[-1], re.MULTILINE)
        if "checks" in (record["extra"] or {})
        else None
    )
    entry = named[1] if named else None
    return Problem("?", "?", "", "function", nothing, nothing, entry_point=entry, language=language)


def problem_id(record: dict[str, Any]) -> str:
    """The id of a record's problem in our workloads, if it is one of HumanEval or MBPP in Python."""
    names = {"humaneval": "HumanEval", "mbpp": "Mbpp"}
    name = next((ours for theirs, ours in names.items() if theirs in record["benchmark"].lower()), "")
    number = record["task_number"] if record["language"].startswith("python") else None
    return f"{name}/{number}"


def tree(code: str) -> str:
    """A program's syntax tree without the places, or its words where it does not parse."""
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return " ".join(code.split())


async def lost(different: list[tuple[str, str, str]], problems: list[Problem], sandbox: str) -> list[str]:
    """Of (problem, our program, theirs) those whose program passes where ours does not, by problem."""
    if not different:
        return []
    passed: list[list[bool]] = []
    with tempfile.TemporaryDirectory() as folder:
        for place in (1, 2):
            path, out = Path(folder, f"{place}.jsonl"), Path(folder, f"{place}.out")
            lines = [{"problem_id": one[0], "code": IMPORTS + one[place]} for one in different]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            await judge_programs(problems, path, out, sandbox=open_sandbox(sandbox, lanes=2))
            passed.append([json.loads(line)["outcome"] == "passed" for line in out.read_text().splitlines()])
    return [one[0] for one, ours, theirs in zip(different, *passed, strict=True) if theirs and not ours]


async def main() -> None:
    """Extract, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sandbox", default="docker")
    options = parser.parse_args()
    sets = options.sets or sorted(path.name[:-9] for path in (options.data / "llm_outputs").glob("*.jsonl.gz"))
    files = {"humaneval": options.data / "humaneval/HumanEval.jsonl.gz", "mbpp": options.data / "mbpp/mbpp.jsonl.gz"}
    known = {problem.id: problem for name, path in files.items() for problem in load(name, path)}
    for name in sets:
        times: list[tuple[float, str]] = []
        nothing, same, elsewhere = 0, 0, 0
        different: list[tuple[str, str, str]] = []
        for record in records(options.data, name):
            problem = problem_of(record, known)
            for answer in record["responses"] or []:
                began = time.thread_time()
                found = extract(answer, problem)
                times.append((time.thread_time() - began, record["task_id"]))
                nothing += found.code is None
            if not (record["passed"] and record["responses"] and record["codes"]):
                continue
            theirs = record["codes"][-1]
            ours = extract(record["responses"][-1], problem).code or ""
            if tree(ours) == tree(theirs) or (ours and re.sub(r"\s", "", ours) == re.sub(r"\s", "", theirs)):
                same += 1
            elif problem.id == "?":
                elsewhere += 1
            else:
                different.append((problem.id, ours, theirs))
        if not times:
            continue
        gone = await lost(different, list(known.values()), options.sandbox)
        slow = sorted(times, reverse=True)[:3]
        print(json.dumps({
            "set": name, "answers": len(times), "no_program": nothing,
            "median_ms": round(1000 * statistics.median(each for each, _ in times), 2),
            "slowest_ms": [[round(1000 * each, 1), id] for each, id in slow],
            "passing": same + elsewhere + len(different), "same_program": same,
            "another_program": len(different), "another_without_tests_here": elsewhere, "lost": gone,
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
