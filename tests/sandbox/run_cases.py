"""Runs the conformance cases on the local sandbox and prints one JSON object: {case: '' or what was wrong}.

A program of its own, so that it can run as another user and with another interpreter: python run_cases.py LEVEL LANES
"""

import asyncio
import json
import sys
import traceback

from agentloop.errors import AgentloopError
from agentloop.sandbox.conformance import Case
from agentloop.sandbox.local import LocalSandbox
from agentloop.testing import sandbox_cases


async def main(level: str, lanes: int) -> dict[str, str]:
    reduced = level == "reduced"
    sandbox = LocalSandbox(lanes=lanes, reduced=reduced)

    async def run(case: Case) -> str:
        _, job, check = case
        try:
            check(await sandbox.execute(job))
        except AssertionError as error:
            return f"{error}" or traceback.format_exc()
        except AgentloopError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    cases = sandbox_cases(reduced=reduced)
    try:
        await sandbox.start()
        results = await asyncio.gather(*(run(case) for case in cases))
    finally:
        await sandbox.close()
    return {case[0]: result for case, result in zip(cases, results, strict=True)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
