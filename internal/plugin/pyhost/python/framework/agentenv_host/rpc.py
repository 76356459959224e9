"""One end of a JSON-RPC 2.0 connection with one message per line, used from any number of threads.

Answers and cancellations are read while every worker is busy: reading never runs a handler. It knows no methods of the protocol.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Dict, Optional, Union

from .workers import Busy, Workers

MAX_MESSAGE = 32 << 20
"""Bytes of one message, its line feed not counted."""

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, BAD_PARAMS, DEFECT = -32700, -32600, -32601, -32602, -32603
CANCELLED, BUSY, NO_VERSION, FAILED, REFUSED = -32800, -32002, -32001, -32010, -32011

Id = Union[int, str]


class RPCError(Exception):
    """An answer that is an error: a code of the protocol, a message for people, and data that the code defines."""

    def __init__(self, code: int, message: str, data: Optional[Dict[str, Any]] = None):
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Gone(ConnectionError):
    """The other side has gone, or this process is a fork of the one that it talks to."""


class Request:
    """A request that is being answered. ``cancelled`` is set when its answer isn't needed any more; ``on_cancel`` is then called once."""

    def __init__(self, id: Id, method: str, params: Dict[str, Any]):
        self.id, self.method, self.params = id, method, params
        self.cancelled = threading.Event()
        self._lock = threading.Lock()
        self._on_cancel: Optional[Callable[[], None]] = None

    def on_cancel(self, act: Optional[Callable[[], None]]) -> None:
        """Sets what cancelling does; a request that was cancelled before is at once."""
        with self._lock:
            self._on_cancel = act
            if act is None or not self.cancelled.is_set():
                return
        act()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled.set()
            act = self._on_cancel
        if act is not None:
            act()


class _Pending:
    __slots__ = ("done", "message")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.message: Optional[Dict[str, Any]] = None


class Peer:
    """Reads requests from one descriptor and answers on another. ``handle`` gets each request on a worker's thread and returns the result.

    run() reads until the other side ends; whoever calls it owns both descriptors.
    """

    def __init__(self, incoming: int, outgoing: int, handle: Callable[[Request], Any], workers: Workers):
        self._incoming, self._outgoing, self._handle, self._workers = incoming, outgoing, handle, workers
        self._write_lock = threading.Lock()
        self._lock = threading.Lock()
        self._next = 0
        self._pending: Dict[Id, _Pending] = {}
        self._running: Dict[Id, Request] = {}
        self._gone = False
        self.forked = False
        os.register_at_fork(after_in_child=self._leave_fork)

    def call(self, method: str, params: Dict[str, Any]) -> Any:
        """Sends a request and waits for its result. Raises RPCError for an error and Gone when there will be no answer."""
        pending = _Pending()
        with self._lock:
            if self._gone:
                raise self._farewell()
            self._next += 1
            id = self._next
            self._pending[id] = pending
        try:
            self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            pending.done.wait()
        finally:
            with self._lock:
                self._pending.pop(id, None)
        message = pending.message
        if message is None:
            raise self._farewell()
        error = message.get("error")
        if isinstance(error, dict):
            raise RPCError(int(error.get("code", DEFECT)), str(error.get("message", "")), error.get("data"))
        return message.get("result")

    def notify(self, method: str, params: Dict[str, Any]) -> None:
        """Sends what needs no answer. Nothing is raised when the other side has gone."""
        try:
            self._send({"jsonrpc": "2.0", "method": method, "params": params})
        except (OSError, RPCError):
            pass

    def run(self) -> None:
        """Reads until the other side ends or says what is no message. Then everything that runs is cancelled, and all that waits ends."""
        try:
            for line in self._lines():
                if line.strip():
                    self._take(line)
        except (OSError, ValueError, TypeError):
            pass  # what is no message ends the connection: nothing after it can be trusted
        with self._lock:
            self._gone = True
            pending, running = list(self._pending.values()), list(self._running.values())
        for p in pending:
            p.done.set()
        for r in running:
            r.cancel()

    @property
    def busy(self) -> bool:
        """Whether requests are being answered."""
        with self._lock:
            return bool(self._running)

    def _lines(self) -> Any:
        buffer = bytearray()
        start = 0  # where to look for a line feed: what was searched isn't searched again
        while True:
            chunk = os.read(self._incoming, 1 << 16)
            if not chunk:
                return
            buffer += chunk
            at = buffer.find(b"\n", start)
            while at >= 0:
                yield bytes(buffer[:at])
                del buffer[: at + 1]
                at = buffer.find(b"\n")
            start = len(buffer)
            if start > MAX_MESSAGE:
                raise ValueError("too long")

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise ValueError("no message")
        id, method, params = message.get("id"), message.get("method"), message.get("params")
        if method is None:
            with self._lock:
                pending = self._pending.get(id)  # type: ignore[arg-type]
            if pending is not None:
                pending.message = message
                pending.done.set()
        elif id is None:
            if method == "$/cancelRequest" and isinstance(params, dict):
                with self._lock:
                    running = self._running.get(params.get("id"))  # type: ignore[arg-type]
                if running is not None:
                    self._workers.urgent(running.cancel)
        else:
            self._begin(Request(id, str(method), params if isinstance(params, dict) else {}))

    def _begin(self, request: Request) -> None:
        with self._lock:
            self._running[request.id] = request
        try:
            self._workers.submit(request.method, lambda: self._answer(request))
        except Busy as e:
            refusal = RPCError(BUSY, str(e))
            self._workers.urgent(lambda: self._finish(request, error=refusal))

    def _answer(self, request: Request) -> None:
        try:
            result = self._handle(request)
        except RPCError as e:
            self._finish(request, error=e)
        except BaseException as e:  # noqa: B036 - a plugin may raise anything, and no request stays without an answer
            self._finish(request, error=RPCError(DEFECT, f"{type(e).__name__}: {e}"))
        else:
            self._finish(request, result=result)

    def _finish(self, request: Request, result: Any = None, error: Optional[RPCError] = None) -> None:
        if self.forked:
            os._exit(0)  # a fork that a plugin let run on: the answer is its parent's to give
        message: Dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        if error is None:
            message["result"] = result
        else:
            message["error"] = {"code": error.code, "message": error.message, **({"data": error.data} if error.data is not None else {})}
        with self._lock:
            self._running.pop(request.id, None)
        try:
            self._send(message)
        except RPCError as e:
            self._finish(request, error=e)
        except OSError:
            pass

    def _send(self, message: Dict[str, Any]) -> None:
        try:
            text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as e:
            raise RPCError(DEFECT, f"a message can't be written as JSON: {e}") from e
        data = text.encode("utf-8", "replace")
        if len(data) > MAX_MESSAGE:
            raise RPCError(DEFECT, f"a message has {len(data)} bytes, and at most {MAX_MESSAGE} are allowed; put what is large into a file or an artifact")
        data += b"\n"
        with self._write_lock:
            if self.forked:
                raise self._farewell()
            view = memoryview(data)
            while view:
                view = view[os.write(self._outgoing, view):]

    def _farewell(self) -> Gone:
        if self.forked:
            return Gone("a fork of the plugin's process can't ask AgentEnv anything; ask before forking")
        return Gone("AgentEnv has ended")

    def _leave_fork(self) -> None:
        """In a fork: the connection is the parent's. Locks that another thread held would never be let go here."""
        self.forked = self._gone = True
        self._write_lock, self._lock = threading.Lock(), threading.Lock()
        for descriptor in {self._incoming, self._outgoing}:
            try:
                os.close(descriptor)
            except OSError:
                pass
