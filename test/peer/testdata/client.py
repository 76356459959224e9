"""The official MCP client against a server: prints one line of JSON with what it saw.

usage: client.py URL TOOL ARGUMENTS
"""
import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url, tool, arguments):
    progress = []

    async def seen(done, total, message):
        progress.append([done, total, message])

    async with streamable_http_client(url) as (read, write, _):
        async with ClientSession(read, write) as session:
            hello = await session.initialize()
            tools = (await session.list_tools()).tools
            result = await session.call_tool(tool, json.loads(arguments), progress_callback=seen)
            unknown = await session.call_tool("no_such_tool", {})
            await session.send_ping()
    print(json.dumps({
        "protocol": hello.protocolVersion, "server": hello.serverInfo.name, "tools": [t.name for t in tools],
        "text": "".join(getattr(c, "text", "") for c in result.content), "structured": result.structuredContent,
        "failed": bool(result.isError), "unknown": bool(unknown.isError), "progress": progress}))


asyncio.run(main(*sys.argv[1:]))
