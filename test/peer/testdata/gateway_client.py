"""The official Python MCP client at a gateway: prints one JSON object of what it saw."""
import asyncio
import json
import sys
from datetime import timedelta

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, size: int) -> None:
    seen: dict = {"progress": []}

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen["progress"].append(done)

    async with streamablehttp_client(url + "/mcp", headers={"AgentEnv-Role": "solver"}) as (read, write, _):
        async with ClientSession(read, write, read_timeout_seconds=timedelta(seconds=120)) as session:
            hello = await session.initialize()
            seen["version"], seen["server"] = hello.protocolVersion, hello.serverInfo.name
            seen["tools"] = sorted(t.name for t in (await session.list_tools()).tools)
            r = await session.call_tool("big_count", {"to": 3}, progress_callback=progress)
            seen["structured"] = r.structuredContent
            r = await session.call_tool("big_text", {"bytes": size})
            seen["bytes"], seen["error"] = len(r.content[0].text), r.isError
            r = await session.call_tool("none", {})
            seen["unknown"] = r.isError
            await session.send_ping()
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
