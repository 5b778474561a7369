"""Are our verdicts right? Programs of others whose verdict is known, through `agentloop judge`.

    python benchmarks/stored_verdicts.py [--data DIR] [--sandbox docker] [--every 1] [--asserts] [--out DIR] [SET ...]

Sets of right programs: humaneval, mbpp, humanevalplus, mbppplus, quixbugs (the references) and
evalperf_correct_solutions. Sets with stored verdicts of their makers: ldb_seeds, ldb_repair_traces, mapcoder_humaneval,
mint_multi_turn (its last proposed solution). Programs get what their makers gave them: the imports below, and the
statement's prelude; MINT's nothing. `--every` takes every n-th. `--asserts` judges them once more by the test code that
their makers used, in the program's process, and names each verdict that differs from that of the calls which the
workload made of it. Prints a line for each disagreement, and the counts; `--out` keeps programs and verdicts.
`docs/explanation/stored-verdicts.md` says what came of it, and why single verdicts differ.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentloop.judging import judge_programs
from agentloop.sandbox import open_sandbox
from agentloop.types import Problem, Suite, Test
from agentloop.workloads import load

if TYPE_CHECKING:
    from agentloop.judging import SuiteName

IMPORTS = "import collections, heapq, itertools, math, re\nfrom typing import *\n"
"""The sources put such imports before every program; a program of theirs may rely on it."""
BARE = "input_data/mbpp/seed/codellama/seed.jsonl"
"""A run of LDB's without them: its programs that lack an import have failed."""
DATA = Path(os.environ.get("AGENTLOOP_DATA", Path(__file__).parents[2] / "shared" / "data"))
FILES = {
    "humaneval": "humaneval/HumanEval.jsonl.gz",
    "mbpp": "mbpp/mbpp.jsonl.gz",
    "humanevalplus": "humanevalplus/HumanEvalPlus-OriginFmt.jsonl.gz",
    "mbppplus": "mbppplus/MbppPlus-OriginFmt.jsonl.gz",
    "quixbugs": "quixbugs/quixbugs.jsonl",
}
STORED = ("evalperf_correct_solutions", "ldb_seeds", "ldb_repair_traces", "mapcoder_humaneval", "mint_multi_turn")
WHOLE = re.compile(r"^(?:def|async def|class|import|from) ", re.MULTILINE)
"""A program with one of these is no body to be put behind the statement's stub."""
SOLUTION = re.compile(r"<solution>(.*?)(?:</solution>|$)", re.DOTALL)


class Program(NamedTuple):
    """A program with the verdict that others gave it."""

    problem_id: str
    code: str
    stored: bool
    model: str


def stored(path: Path, benchmark: str) -> Iterator[Program]:
    """The last program of each record on one benchmark; of a sampled set every program."""
    prefix = "HumanEval" if benchmark.startswith("humaneval") else "Mbpp"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if record["benchmark"] != benchmark or record["language"] != "python" or record["passed"] is None:
                continue
            if path.name.startswith("mint"):
                codes = [match.strip() for match in SOLUTION.findall(record["responses"][-1])][-1:]
            else:
                codes = record["codes"] if path.name.startswith("evalperf") else record["codes"][-1:]
                if record["run"] != BARE:
                    codes = [IMPORTS + code if WHOLE.search(code) else code for code in codes]
            for code in codes:
                yield Program(f"{prefix}/{record['task_number']}", code, record["passed"], record["model"])


def test_codes(name: str, workload: str, data: Path) -> dict[str, str]:
    """By problem: the test code that the makers of a set judged with. LDB's is its own form of MBPP's asserts."""
    entries, shown = {}, {}
    if name.startswith("ldb") and workload == "mbpp":
        with gzip.open(data / f"llm_outputs/{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for each in map(json.loads, lines):
                entries[each["task_number"]] = each["extra"]["entry_point"]
                shown[each["task_number"]] = each["extra"].get("given_tests", [])
    codes = {}
    with gzip.open(data / FILES[workload], "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if workload == "humaneval":
                codes[record["task_id"]] = f"{record['test']}\ncheck({record['entry_point']})\n"
                continue
            task = record["task_id"]
            asserts = [each.replace("\r\n", "\n") for each in record["test_list"]]
            if task in entries:  # a function `check`, whatever the program calls its own; run twice
                if asserts[0].endswith("== -1,-6") and shown[task][:1] == [f"{asserts[0][:-5]}(-1,-6)"]:
                    asserts = [re.sub(r"== (.*)$", r"== (\1)", each) for each in asserts]  # Mbpp/436, mended there
                body = "".join(f"    {each}\n" for each in asserts)
                code = f"def check(candidate):\n{body}check({entries[task]})\ncheck({entries[task]})\n"
            else:
                code = "\n".join(asserts)
            codes[f"Mbpp/{task}"] = f"{record['test_setup_code']}\n{code}\n".replace("\r\n", "\n")
    return codes


def by_asserts(problems: list[Problem], codes: dict[str, str]) -> list[Problem]:
    """The problems, each with one hidden test: that code, run in the program's process."""
    found = []
    for problem in problems:
        code = codes[problem.id]
        test = Test("asserts", "script", {"code": code, "function": problem.entry_point}, None, "in_process", "")
        limits = replace(
            problem.limits, cpu=3 * problem.limits.cpu, wall=3 * problem.limits.wall
        )  # one process for all
        found.append(replace(problem, visible=Suite("visible", ()), hidden=Suite("hidden", (test,)), limits=limits))
    return found


async def judged(
    problems: list[Problem], programs: list[Program], out: Path, suite: SuiteName, sandbox: str
) -> list[dict[str, Any]]:
    """The lines of `agentloop judge`, in order. Prints how long it took."""
    began = time.perf_counter()
    file, lanes = out.with_suffix(".programs.jsonl"), os.cpu_count() or 1
    file.write_text("".join(json.dumps(each._asdict()) + "\n" for each in programs))
    await judge_programs(problems, file, out, suite=suite, sandbox=open_sandbox(sandbox, lanes=lanes), jobs=lanes)
    with out.open() as text:
        lines = [json.loads(line) for line in text]
    tests = sum(len(line.get("tests", ())) for line in lines)
    print(f"{out.stem}: {len(lines)} programs, {tests} tests, {time.perf_counter() - began:.0f} s", flush=True)
    return lines


async def study(options: argparse.Namespace, name: str, workload: str, folder: Path) -> None:
    """Judge one set on one workload and print what differs."""
    path = options.data / FILES[workload]
    problems = load(workload, path)
    if name in FILES:
        programs = [Program(each.id, each.references[0], True, "reference") for each in problems if each.references]
    else:
        programs = list(stored(options.data / f"llm_outputs/{name}.jsonl.gz", workload))
    known = {problem.id for problem in problems}
    programs = [each for each in programs if each.problem_id in known][:: options.every]
    if not programs:
        return
    if name == "mint_multi_turn":
        problems = [replace(problem, prelude="", stub="") for problem in problems]
    label = f"{name}.{workload}"
    suite: SuiteName = "all" if workload == "mbpp" else "hidden"
    lines = await judged(problems, programs, folder / f"{label}.jsonl", suite, options.sandbox)
    differ = [line for line in lines if line["stored"] != (line["outcome"] == "passed")]
    for line in differ:
        print(f"  {line['problem_id']} {line['model']}: stored {line['stored']}, here {told(line)}")
    print(f"{label}: {len(lines) - len(differ)} of {len(lines)} agree", flush=True)
    if options.asserts and workload in ("humaneval", "mbpp"):
        asserted = by_asserts(problems, test_codes(name, workload, options.data))
        others = await judged(asserted, programs, folder / f"{label}.asserts.jsonl", "hidden", options.sandbox)
        pairs = list(zip(lines, others, strict=True))
        changed = [(calls, asserts) for calls, asserts in pairs if calls["outcome"] != asserts["outcome"]]
        for calls, asserts in changed:
            print(f"  {calls['problem_id']} {calls['model']}: calls {told(calls)}; asserts {told(asserts)}")
        crossed = sum((calls["outcome"] == "passed") != (asserts["outcome"] == "passed") for calls, asserts in changed)
        counts = f"{crossed} of {len(pairs)} pass by one alone, {len(changed)} differ in their outcome"
        print(f"{label}: calls and asserts: {counts}", flush=True)
        agree = sum(line["stored"] == (line["outcome"] == "passed") for line in others)
        print(f"{label}: {agree} of {len(others)} agree by asserts", flush=True)


def told(line: dict[str, Any]) -> str:
    """A verdict in a few words."""
    if line["outcome"] is None:
        return str(line.get("fault") or line.get("left_out"))
    for test in line["tests"]:
        if test["outcome"] != "passed":
            words = f"{test['id']} got {test['got'][-120:]!r} expected {test['expected'][:80]!r}"
            return f"{line['outcome']} {line['detail']} {words}"
    return str(line["outcome"])


async def main() -> int:
    """Judge the sets and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*FILES, *STORED], metavar="SET")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sandbox", default="docker")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--asserts", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    unknown = set(options.sets) - {*FILES, *STORED}
    if unknown:
        parser.error(f"unknown sets {', '.join(sorted(unknown))}; known: {', '.join([*FILES, *STORED])}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.sets:
            for workload in [name] if name in FILES else list(FILES)[:4]:
                await study(options, name, workload, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
