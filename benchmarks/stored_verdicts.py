"""How often do our verdicts agree with verdicts that other people stored beside their models' programs?

    python benchmarks/stored_verdicts.py [--data DIR] [--every 7] [--sandbox local] [FILE ...]

FILE: names below `llm_outputs` of the data folder (default `ldb_seeds`), records with `benchmark`, `task_number`,
`codes` and `passed`. Of each file every n-th record is judged: the last program against the hidden suite of HumanEval,
or all asserts of MBPP. Programs get what their sources gave them: the prompt before a body without its `def`, and the
imports below. Prints a line for each disagreement, and the counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

from agentloop.extract import extract
from agentloop.sandbox import open_sandbox
from agentloop.types import Job, Problem, Suite, SuiteVerdict
from agentloop.verdict import judge
from agentloop.workloads import load

IMPORTS = "import collections, heapq, itertools, math, re\nfrom typing import *\n"
"""The sources put such imports before every program; a program of theirs may rely on it."""
DATA = Path(os.environ.get("AGENTLOOP_DATA", Path(__file__).parents[2] / "shared" / "data"))


def graded(workload: str, path: Path) -> dict[int, tuple[Problem, Suite]]:
    """Problem number -> problem and the suite that the stored verdicts are about."""
    found = {}
    for problem in load(workload, path):
        tests = problem.hidden.tests if workload == "humaneval" else problem.visible.tests + problem.hidden.tests
        found[int(problem.id.partition("/")[2])] = (problem, Suite("hidden", tests))
    return found


def records(path: Path, every: int) -> list[dict[str, Any]]:
    """Every n-th Python record that has a program and a verdict."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    usable = [
        each for each in found if each["codes"] and each["passed"] is not None and each["task_number"] is not None
    ]
    return [each for each in usable if each["language"] == "python" and each["benchmark"] in ("humaneval", "mbpp")][
        ::every
    ]


async def main() -> int:
    """Judge the sample and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=["ldb_seeds"])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--sandbox", default="local")
    options = parser.parse_args()
    suites = {
        "humaneval": graded("humaneval", options.data / "humaneval" / "HumanEval.jsonl.gz"),
        "mbpp": graded("mbpp", options.data / "mbpp" / "mbpp.jsonl.gz"),
    }
    lanes = os.cpu_count() or 1
    sandbox = open_sandbox(options.sandbox, lanes=lanes)
    print((await sandbox.start())["isolation"])
    free = asyncio.Semaphore(lanes)

    async def verdict(record: dict[str, Any]) -> SuiteVerdict:
        problem, suite = suites[record["benchmark"]][record["task_number"]]
        found = extract(f"```\n{record['codes'][-1]}\n```", problem)
        program = f"{IMPORTS}{problem.prelude}\n{found.code or record['codes'][-1]}"
        async with free:
            return judge(suite, await sandbox.execute(Job("python", program, suite.tests, problem.limits)))

    try:
        for name in options.files:
            sample = records(options.data / "llm_outputs" / f"{name}.jsonl.gz", options.every)
            began = time.perf_counter()
            verdicts = await asyncio.gather(*map(verdict, sample))
            pairs = list(zip(sample, verdicts, strict=True))
            differ = [(record, ours) for record, ours in pairs if record["passed"] != (ours.outcome == "passed")]
            for record, ours in differ:
                first = next((test for test in ours.tests if test.outcome != "passed"), None)
                told = f"{first.test} got {first.got[-200:]!r} expected {first.expected[:80]!r}" if first else ""
                who = f"{record['task_id']} {record['model']}"
                print(f"  {who}: stored {record['passed']}, here {ours.outcome} {ours.detail} {told}")
            seconds = time.perf_counter() - began
            print(f"{name}: {len(sample) - len(differ)} of {len(sample)} agree, {seconds:.0f} s")
    finally:
        await sandbox.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
