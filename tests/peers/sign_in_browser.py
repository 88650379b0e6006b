"""`python -m tests.peers.sign_in_browser ADDRESS`: the browser of a person who signs in with the code in VISITOR_CODE.

For BROWSER, which programs start to show somebody a page.
"""

import asyncio
import os
import sys

import httpx

from tests.peers.oauth_flow import Person

BROWSER = f"{sys.executable} -m tests.peers.sign_in_browser %s"


async def main(address: str) -> None:
    told = await Person(code=os.environ.get("VISITOR_CODE", "")).visit(address)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        await http.get(told.pop("to"), params=told)
    # As browsers do: into the stream that it was started with, which must be nobody's.
    print("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
