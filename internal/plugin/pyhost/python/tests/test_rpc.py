import json
import os
import threading
import unittest

from agentenv_host.rpc import BUSY, MAX_MESSAGE, Gone, Peer, RPCError
from agentenv_host.workers import THREADS, WAITING, Workers


class Pair:
    """A peer, and the other end of its connection as a file to write to and one to read from."""

    def __init__(self, handle):
        theirs, ours = os.pipe()
        reading, writing = os.pipe()
        self.out, self.read = os.fdopen(ours, "wb"), os.fdopen(reading, "rb")
        self.workers = Workers()
        self.peer = Peer(theirs, writing, handle, self.workers)
        self.ends = (theirs, writing)
        self.thread = threading.Thread(target=self.peer.run)
        self.thread.start()

    def say(self, **message):
        self.out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.out.flush()

    def hear(self):
        return json.loads(self.read.readline())

    def close(self):
        if not self.out.closed:
            self.out.close()
        self.thread.join(10)
        self.workers.close()
        self.read.close()
        for end in self.ends:
            os.close(end)


class Peers(unittest.TestCase):
    def pair(self, handle):
        p = Pair(handle)
        self.addCleanup(p.close)
        return p

    def test_a_request_and_a_question_inside_it(self):
        p = self.pair(lambda request: p.peer.call("ask", {"n": request.params["n"]}) + 1)
        p.say(id="a", method="do", params={"n": 1})
        question = p.hear()
        self.assertEqual((question["method"], question["params"]), ("ask", {"n": 1}))
        p.say(id=question["id"], result=41)
        self.assertEqual(p.hear(), {"jsonrpc": "2.0", "id": "a", "result": 42})

    def test_errors_of_handlers(self):
        def handle(request):
            raise {"rpc": RPCError(-1, "no", {"x": 1}), "exit": SystemExit(1), "odd": ValueError("caf\udce9")}[request.method]

        p = self.pair(handle)
        for method, code in (("rpc", -1), ("exit", -32603), ("odd", -32603)):
            p.say(id=1, method=method)
            self.assertEqual(p.hear()["error"]["code"], code)

    def test_answers_and_cancellations_are_read_while_all_workers_are_busy(self):
        def handle(request):
            if not request.cancelled.wait(10):
                raise TimeoutError
            return "cancelled"

        p = self.pair(handle)
        for i in range(THREADS + 5):
            p.say(id=i, method="wait")
        p.say(method="$/cancelRequest", params={"id": 0})
        self.assertEqual(p.hear(), {"jsonrpc": "2.0", "id": 0, "result": "cancelled"})
        for i in range(1, THREADS + 5):
            p.say(method="$/cancelRequest", params={"id": i})
        self.assertEqual({p.hear()["id"] for _ in range(THREADS + 4)}, set(range(1, THREADS + 5)))

    def test_more_than_may_wait_is_refused(self):
        go = threading.Event()
        p = self.pair(lambda request: go.wait(20))
        for i in range(THREADS + WAITING + 50):
            p.say(id=i, method="wait")
        self.assertEqual(p.hear()["error"]["code"], BUSY)
        go.set()

    def test_what_is_no_message_ends_the_connection(self):
        for line in (b"{\n", b"[]\n", b'{"id":1,"method":"x"}\n', b'{"jsonrpc":"2.0","id":[1],"result":1}\n', b"\xff\n"):
            p = Pair(lambda request: None)
            p.out.write(line)
            p.out.flush()
            p.thread.join(10)
            self.assertFalse(p.thread.is_alive(), line)
            p.close()

    def test_too_long_ends_the_connection(self):
        p = Pair(lambda request: None)

        def flood():
            try:
                p.out.write(b'"' + b"x" * (MAX_MESSAGE + (1 << 20)))
                p.out.flush()
            except BrokenPipeError:
                pass

        writer = threading.Thread(target=flood, daemon=True)
        writer.start()
        p.thread.join(20)
        self.assertFalse(p.thread.is_alive())
        os.close(p.ends[0])
        writer.join(10)
        p.ends = p.ends[1:]
        try:
            p.out.close()
        except BrokenPipeError:
            pass
        p.close()

    def test_questions_end_with_the_connection(self):
        p = self.pair(lambda request: None)
        said = []

        def ask():
            try:
                p.peer.call("ask", {})
            except Gone as e:
                said.append(str(e))

        asking = threading.Thread(target=ask)
        asking.start()
        p.hear()
        p.out.close()
        asking.join(10)
        self.assertEqual(said, ["AgentEnv has ended"])
        with self.assertRaises(Gone):
            p.peer.call("ask", {})
