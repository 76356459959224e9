"""An agent on the peer's SDK that does what validators ask: says what its system prompt ends with, and calls the tool that it is told to call."""
import asyncio
import json
import re
import urllib.request

from agentenv_protocol.a2a_agent import (MCP_CONFIG_V1, PEER_AGENTS_V1, TRAJECTORY_V1, AgentConfig, AgentEnvAgent, AgentIdentity, TaskRequest, TaskResult,
                                         a2a_agent, enable)


class Config(AgentConfig):
    system_prompt: str | None = None


def post(url, body, headers):
    r = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers})
    with urllib.request.urlopen(r) as a:
        text = a.read().decode()
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        return json.loads(lines[-1] if lines else text or "null"), a.headers


def call(server, tool):
    headers = dict(server.get("headers") or {})
    _, got = post(server["url"], {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "boxed", "version": "1"}}}, headers)
    headers["Mcp-Session-Id"] = got["Mcp-Session-Id"]
    post(server["url"], {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    out, _ = post(server["url"], {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {"text": "hi"}}}, headers)
    return out["result"]["content"][0]["text"]


@a2a_agent(identity=AgentIdentity(name="boxed", description="Does what validators ask.", version="1.0.0"), config=Config,
           extensions=[enable(MCP_CONFIG_V1), enable(PEER_AGENTS_V1), enable(TRAJECTORY_V1, variants={"get": ["task_events", "context_events"]})])
class Boxed(AgentEnvAgent):
    async def run(self, request: TaskRequest[Config]) -> TaskResult:
        text = "".join(getattr(p, "text", "") for p in request.parts)
        request.trajectory.set_format("boxed")
        request.trajectory.append({"asked": text})
        if text == "die":
            import os
            os._exit(3)
        tool = re.search("Call the tool `([^`]+)`", text)
        if tool:
            server = next(v for k, v in request.mcp_servers.items() if k != "peer_agents")
            return TaskResult.text(await asyncio.to_thread(call, server, tool[1]))
        if text == "What is your validator code?":
            return TaskResult.text((request.config.system_prompt or "none").split()[-1])
        return TaskResult.text("you said " + text)


if __name__ == "__main__":
    Boxed().serve()
