"""Look at the mailbox after the agent has worked in it.

It speaks MCP with the standard library alone, so that it runs wherever there is a Python.
"""
import json
import urllib.request


class Session:
    """One MCP session: initialize, call tools, end."""

    def __init__(self, url):
        self.url, self.id, self.count = url, None, 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "verify", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message, method="POST"):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.id:
            headers.update({"Mcp-Session-Id": self.id, "MCP-Protocol-Version": "2025-11-25"})
        body = None if message is None else json.dumps(message).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url, body, headers, method=method), timeout=60) as answer:
            self.id = self.id or answer.headers.get("Mcp-Session-Id")
            text = answer.read().decode()
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                return [json.loads(text)] if text else []
            return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]

    def ask(self, method, params):
        self.count += 1
        for message in self.send({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}):
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
        raise RuntimeError(f"{method}: no answer")

    def call(self, tool, **arguments):
        """The tool's text, and whether it failed."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return "".join(part.get("text", "") for part in result["content"]), result.get("isError", False)

    def end(self):
        self.send(None, "DELETE")


async def verify(mcp_url):
    session = Session(mcp_url)

    def emails(folder):
        text, failed = session.call("search_emails", folder=folder, query="")
        if failed:
            raise RuntimeError(text)
        return [json.loads(session.call("read_email", id=email["id"])[0]) for email in json.loads(text)]

    try:
        sent, inbox, archive = emails("sent"), emails("inbox"), emails("archive")
    finally:
        session.end()
    right = [email for email in sent if email["to"] == "billing@acme-supplies.example"]
    return [
        {"id": "answers-the-sender", "result": bool(right), "description": f"sent to {[email['to'] for email in sent]}"},
        {"id": "names-the-invoice", "result": any("INV-1042" in email["body"] for email in right)},
        {"id": "names-the-day", "result": any("November" in email["body"] for email in right)},
        {"id": "archives-the-invoice", "result": [email["id"] for email in archive] == ["m-2"]},
        {"id": "leaves-the-rest-alone", "result": {"m-1", "m-3", "m-4"} <= {email["id"] for email in inbox} and len(sent) <= 1},
    ]
