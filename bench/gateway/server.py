"""The environment of server.go on FastMCP, for the rows with a Python server behind the gateways."""
import os

from mcp.server.fastmcp import FastMCP
from starlette.responses import JSONResponse

NAME = os.environ["ENVIRONMENT_NAME"]
app = FastMCP(NAME, log_level="WARNING")
app.settings.host = os.environ["MCP_HOST"]
app.settings.port = int(os.environ["MCP_PORT"])
app.settings.transport_security.enable_dns_rebinding_protection = False


@app.tool(name=NAME + "_ping")
async def ping(text: str) -> str:
    """Give the text back."""
    return text


@app.custom_route("/.well-known/agent-env.json", methods=["GET"])
async def card(request):
    return JSONResponse({"name": NAME, "protocolVersion": "1.0", "url": "/agentenv", "preferredTransport": "JSONRPC", "capabilities": {"extensions": []}})


@app.custom_route("/ready", methods=["GET"])
async def ready(request):
    return JSONResponse({"ok": True})


app.run(transport="streamable-http")
