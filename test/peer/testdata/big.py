"""An environment server on the official Python MCP SDK for tests of gateways: progress, structured results, and results of any size."""
import os

from mcp.server.fastmcp import Context, FastMCP
from starlette.responses import JSONResponse

app = FastMCP("big", log_level="WARNING")
app.settings.host = os.environ["MCP_HOST"]
app.settings.port = int(os.environ["MCP_PORT"])
app.settings.transport_security.enable_dns_rebinding_protection = False


@app.tool(name="big_count")
async def count(to: int, ctx: Context) -> dict[str, int]:
    """Count and tell of it."""
    for i in range(to):
        await ctx.report_progress(i + 1, to)
    return {"counted": to}


@app.tool(name="big_text")
async def text(bytes: int) -> str:
    """Give so many bytes."""
    return "x" * bytes


@app.custom_route("/.well-known/agent-env.json", methods=["GET"])
async def card(request):
    return JSONResponse({"name": "big", "protocolVersion": "1.0", "url": "/agentenv", "preferredTransport": "JSONRPC", "capabilities": {"extensions": []}})


app.run(transport="streamable-http")
