"""A small client of MCP over streamable HTTP, for verifiers on machines where the package of this name isn't installed.

It has what verifiers use: ClientSession with initialize, list_tools, call_tool, list_resources, read_resource, list_prompts, get_prompt and
send_ping, and mcp.client.streamable_http. Answers have their fields as attributes. Nothing that a server begins by itself is heard.
"""
import asyncio

from .types import Result

__all__ = ["ClientSession", "McpError"]

VERSION = "2025-11-25"


class McpError(Exception):
    """A server's JSON-RPC error."""

    def __init__(self, error):
        super().__init__(error.get("message", "error"))
        self.error = Result(error)


class ClientSession:
    """One session. read_stream is what streamable_http_client yields first; the rest is taken so that calls of the package fit."""

    def __init__(self, read_stream, write_stream=None, read_timeout_seconds=None, **_):
        self._link = read_stream
        self._limit = read_timeout_seconds

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return False

    async def _call(self, method, params=None, limit=None):
        limit = limit or self._limit
        seconds = limit.total_seconds() if hasattr(limit, "total_seconds") else limit
        answer = await asyncio.wait_for(asyncio.to_thread(self._link.call, method, params or {}), seconds)
        if answer.get("error"):
            raise McpError(answer["error"])
        return Result(answer.get("result") or {})

    async def initialize(self):
        result = await self._call("initialize", {
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "agent-env-verifier", "version": "1"},
        })
        self._link.version = result.protocolVersion
        await asyncio.to_thread(self._link.notify, "notifications/initialized")
        return result

    async def send_ping(self):
        return await self._call("ping")

    async def list_tools(self, cursor=None):
        return await self._call("tools/list", {"cursor": cursor} if cursor else {})

    async def call_tool(self, name, arguments=None, read_timeout_seconds=None, **_):
        result = await self._call("tools/call", {"name": name, "arguments": arguments or {}}, read_timeout_seconds)
        return Result(dict({"isError": False, "structuredContent": None, "content": []}, **result.model_dump()))

    async def list_resources(self, cursor=None):
        return await self._call("resources/list", {"cursor": cursor} if cursor else {})

    async def read_resource(self, uri):
        return await self._call("resources/read", {"uri": str(uri)})

    async def list_prompts(self, cursor=None):
        return await self._call("prompts/list", {"cursor": cursor} if cursor else {})

    async def get_prompt(self, name, arguments=None):
        return await self._call("prompts/get", {"name": name, "arguments": arguments or {}})
