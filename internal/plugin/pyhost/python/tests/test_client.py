import asyncio
import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agentenv_protocol import client
from agentenv_protocol.errors import shown
from agentenv_protocol.types import EnvironmentCapabilities, EnvironmentCard, EnvironmentExtension

MANY = {"uri": "urn:x:many/v1", "params": {"endpoint": "/ext/many", "methods": {"get": {"method": "GET"}, "set": {"endpoint": "/ext/many/set"}}}}
ONE = {"uri": "urn:x:one/v1", "params": {"methods": {"do": {"method": "POST", "endpoint": "/ext/one"}}}}
BARE = {"uri": "urn:x:bare/v1", "params": {"endpoint": "/ext/bare"}}
EMPTY = {"uri": "urn:x:empty/v1", "params": None}
CARD = {"name": "x", "capabilities": {"extensions": [MANY, ONE, BARE, EMPTY]}}


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        if path.endswith("/slow"):
            time.sleep(5)
        status, out = 200, {"path": path, "query": query, "body": json.loads(body) if body else None, "verb": self.command}
        if path.endswith("/agentenv"):
            method = out["body"]["method"]
            out = {
                "data/get": {"jsonrpc": "2.0", "id": 1, "result": {"parts": [{"kind": "data", "data": {"n": 1}}, {"kind": "text", "text": "t"}, {"kind": "new", "x": 1}]}},
                "data/add": {"jsonrpc": "2.0", "id": 1, "result": {}},
                "data/reset": {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no", "data": {"code": "reset_failed"}}},
            }[method]
        if path.endswith("/ext/bare"):
            status, out = 409, {"ok": False, "error": {"code": "conflict", "message": "so already", "retryable": True, "applied": "no"}}
        data = json.dumps(out).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *args):
        pass


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        cls.server.daemon_threads = True
        threading.Thread(target=cls.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        cls.base = f"http://127.0.0.1:{cls.server.server_port}/c/secret"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def invoke(self, uri, params=None, **options):
        return asyncio.run(client.invoke_extension(self.base, CARD, uri, params, **options))

    def test_find_extension(self):
        self.assertEqual(client.find_extension(CARD, "urn:x:one/v1"), ONE)
        self.assertIsNone(client.find_extension(CARD, "urn:x:none/v1"))
        for card in ({}, None, {"capabilities": None}, {"capabilities": {"extensions": None}}):
            self.assertIsNone(client.find_extension(card, "urn:x:one/v1"))
        card = EnvironmentCard(name="x", capabilities=EnvironmentCapabilities(extensions=[EnvironmentExtension(uri="urn:x:y/v1")]))
        self.assertEqual(client.find_extension(card, "urn:x:y/v1")["uri"], "urn:x:y/v1")

    def test_routes(self):
        self.assertEqual(self.invoke("urn:x:many/v1", {"a": "b c", "n": 1}, method="get"), {"path": "/c/secret/ext/many", "query": "a=b+c&n=1", "body": None, "verb": "GET"})
        self.assertEqual(self.invoke("urn:x:many/v1", {"a": 1}, method="set")["path"], "/c/secret/ext/many/set")
        self.assertEqual(self.invoke("urn:x:one/v1")["body"], {})
        for uri, method in (("urn:x:none/v1", None), ("urn:x:many/v1", "del"), ("urn:x:empty/v1", None)):
            with self.assertRaises(LookupError):
                self.invoke(uri, method=method)

    def test_refusals(self):
        with self.assertRaises(client.HTTPStatusError) as caught:
            self.invoke("urn:x:bare/v1")
        e = caught.exception
        self.assertEqual((e.code, e.retryable, e.applied, e.response.status_code), ("conflict", True, "no", 409))
        self.assertNotIn("secret", str(e))
        self.assertIn("conflict: so already", str(e))

    def test_data_plane(self):
        got = asyncio.run(client.get_data(self.base))
        self.assertEqual([p.kind for p in got.parts], ["data", "text", "new"])
        self.assertEqual(got.parts[0].data, {"n": 1})
        asyncio.run(client.add_data(self.base, [got.parts[0]]))
        with self.assertRaises(client.DataPlaneError) as caught:
            asyncio.run(client.reset_data(self.base))
        self.assertEqual((caught.exception.code, caught.exception.reason), (-32000, "reset_failed"))

    def test_nobody_and_late(self):
        with self.assertRaises(client.Unreachable):
            asyncio.run(client.get_card("http://127.0.0.1:9", timeout=2))
        slow = {"capabilities": {"extensions": [{"uri": "u", "params": {"endpoint": "/slow"}}]}}
        with self.assertRaises(client.Late):
            asyncio.run(client.invoke_extension(self.base, slow, "u", {}, timeout=0.1))

    def test_cancelling_breaks_the_request_off(self):
        slow = {"capabilities": {"extensions": [{"uri": "u", "params": {"endpoint": "/slow"}}]}}

        async def act():
            task = asyncio.ensure_future(client.invoke_extension(self.base, slow, "u", {}, timeout=30))
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        start = time.monotonic()
        asyncio.run(act())
        self.assertLess(time.monotonic() - start, 3)

    def test_addresses_are_shown_without_secrets(self):
        self.assertEqual(shown("http://u:p@h:1/c/s3cret/x/y?z=1"), "http://h:1/x/y")
        self.assertEqual(shown("http://h/"), "http://h/")
