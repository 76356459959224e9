"""MCP over streamable HTTP."""
import asyncio
import contextlib
import http.client
import json
import threading
import urllib.parse

LIMIT = 600  # seconds that one answer may take


class Link:
    """What ClientSession calls through. Calls from several tasks go side by side, each over a connection of its own."""

    def __init__(self, url, headers=None):
        parts = urllib.parse.urlsplit(url)
        self._secure, self._host = parts.scheme == "https", parts.netloc
        self._path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        self._headers = dict(headers or {})
        self._lock, self._next = threading.Lock(), 0
        self.session = self.version = None

    def _request(self, verb, body=None):
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        conn = kind(self._host, timeout=LIMIT)
        headers = dict(self._headers)
        headers["Accept"] = "application/json, text/event-stream"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        conn.request(verb, self._path, body, headers)
        return conn, conn.getresponse()

    def _post(self, message):
        conn, answer = self._request("POST", json.dumps(message).encode())
        with contextlib.closing(conn):
            self.session = answer.getheader("Mcp-Session-Id") or self.session
            if answer.status >= 400:
                raise ConnectionError("the server answered with status %d: %s" % (answer.status, answer.read(500).decode("utf-8", "replace")))
            if "id" not in message:
                return None
            if (answer.getheader("Content-Type") or "").startswith("text/event-stream"):
                for event in events(answer):
                    if event.get("id") == message["id"] and "method" not in event:
                        return event
                raise ConnectionError("the server's stream ended without an answer")
            return json.loads(answer.read())

    def call(self, method, params):
        with self._lock:
            self._next += 1
            number = self._next
        return self._post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def notify(self, method):
        self._post({"jsonrpc": "2.0", "method": method})

    def close(self):
        if self.session:
            with contextlib.suppress(OSError, http.client.HTTPException):
                conn, answer = self._request("DELETE")
                answer.read()
                conn.close()


def events(answer):
    """The messages of a stream of server-sent events."""
    data = []
    for line in answer:
        line = line.decode("utf-8").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


@contextlib.asynccontextmanager
async def streamable_http_client(url, headers=None, *_, **__):
    link = Link(url, headers)
    try:
        yield link, link, lambda: link.session
    finally:
        await asyncio.to_thread(link.close)


streamablehttp_client = streamable_http_client
