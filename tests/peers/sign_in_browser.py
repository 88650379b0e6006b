"""A command for the BROWSER variable: opens a URL and signs in with the code in VISITOR_CODE.

Usage: `python -m tests.peers.sign_in_browser URL`.
"""

import asyncio
import os
import sys

import httpx

from tests.peers.oauth_flow import BrowserUser

BROWSER = f"{sys.executable} -m tests.peers.sign_in_browser %s"


async def main(url: str) -> None:
    callback = await BrowserUser(code=os.environ.get("VISITOR_CODE", "")).visit(url)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        await http.get(callback.pop("to"), params=callback)
    # Browsers print to the inherited standard output; the command under test must not use that stream for messages.
    print("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
