"""Takes screenshots of computers by the Python MCP client, in turns, and prints how long each took, in milliseconds."""
import asyncio
import json
import sys
import time

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(count, urls):
    out = {u: [] for u in urls}
    sizes = {}
    for u in urls:
        async with streamable_http_client(u + "/mcp") as (read, write, _), ClientSession(read, write) as s:
            await s.initialize()
            for i in range(count + 3):
                began = time.perf_counter()
                r = await s.call_tool("computer_screenshot", {})
                took = time.perf_counter() - began
                assert not r.isError, r
                sizes[u] = len(r.content[-1].data) * 3 // 4
                if i >= 3:
                    out[u].append(took * 1000)
    print(json.dumps([{"url": u, "bytes": sizes[u], "ms": out[u]} for u in urls]))


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
