"""An environment server of the standard library alone: it keeps words, and has one tool that counts them."""
import http.server
import json
import os
import uuid

WORDS = []


def tool(name, arguments):
    if name != "count_words":
        return {"content": [{"type": "text", "text": "Unknown tool: " + name}], "isError": True}
    found = [w for w in WORDS if arguments.get("letter", "") in w]
    return {"content": [{"type": "text", "text": str(len(found))}], "structuredContent": {"found": found}, "isError": False}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "words", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"letter": {"type": "string"}}}
        return {"tools": [{"name": "count_words", "description": "Count.", "inputSchema": schema}]}
    if method == "tools/call":
        return tool(params["name"], params.get("arguments") or {})
    if method == "data/reset":
        WORDS.clear()
    if method == "data/add":
        with open(params["parts"][0]["file"]["uri"][len("file://"):]) as f:
            WORDS.extend(json.load(f)["words"])
    if method == "data/get":
        return {"parts": [{"kind": "data", "data": {"words": WORDS}}]}
    return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in dict(headers, **{"Content-Type": "application/json", "Content-Length": str(len(body))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path != "/.well-known/agent-env.json":
            return self.reply(405, b"{}")
        self.reply(200, json.dumps({
            "name": os.environ["ENVIRONMENT_NAME"], "protocolVersion": "1.0", "url": "/agentenv", "preferredTransport": "JSONRPC",
            "additionalInterfaces": [{"url": "/mcp", "transport": "mcp"}],
            "capabilities": {"extensions": None, "tools": None, "operations": ["data/reset", "data/add", "data/get"]}, "children_environments": None,
        }).encode())

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.reply(202, b"")
        body = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message["method"], message.get("params") or {})}
        self.reply(200, json.dumps(body).encode(), Mcp_Session_Id=self.headers.get("Mcp-Session-Id") or uuid.uuid4().hex)

    def do_DELETE(self):
        self.reply(200, b"")


http.server.ThreadingHTTPServer((os.environ["MCP_HOST"], int(os.environ["MCP_PORT"])), Handler).serve_forever()
