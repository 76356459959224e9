"""Takes screenshots of computers by the Python MCP client, in turns, and prints how long each took, in milliseconds."""
import asyncio
import contextlib
import json
import sys
import time

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(count, urls):
    took = {u: [] for u in urls}
    sizes = {}
    async with contextlib.AsyncExitStack() as stack:
        sessions = {}
        for u in urls:
            read, write, _ = await stack.enter_async_context(streamable_http_client(u + "/mcp"))
            sessions[u] = await stack.enter_async_context(ClientSession(read, write))
            await sessions[u].initialize()
        for i in range(count + 3):
            for u, s in sessions.items():
                began = time.perf_counter()
                r = await s.call_tool("computer_screenshot", {})
                ms = (time.perf_counter() - began) * 1000
                assert not r.isError, r
                sizes[u] = len(r.content[-1].data) * 3 // 4
                if i >= 3:
                    took[u].append(ms)
    print(json.dumps([{"url": u, "bytes": sizes[u], "ms": took[u]} for u in urls]))


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
