"""Runs the cases of the languages on a sandbox and prints one JSON object: {case: '' or what was wrong}.

A program of its own, so that it can run as another user: python run_languages.py SANDBOX LANGUAGE [--probe]
A language whose compiler is not there gives {"skip": why}.
"""

import asyncio
import json
import sys

from agentloop.errors import AgentloopError
from agentloop.sandbox import open_sandbox
from agentloop.testing import language_cases, why_not, wrong


async def main(spec: str, language: str, cases: slice) -> dict[str, str]:
    sandbox = open_sandbox(spec, lanes=1)
    try:
        await sandbox.start()
        if why := await why_not(sandbox, language):
            return {"skip": why}
        return await wrong(sandbox, language_cases(language)[cases])
    except AgentloopError as error:
        return {"skip": f"{error}"}
    finally:
        await sandbox.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], slice(2 if "--probe" in sys.argv else None)))))
