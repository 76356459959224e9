"""The call that code runs for, and questions to AgentEnv in its name.

A call's token travels with a thread's context: into tasks, ``asyncio.to_thread`` and the executor of the loop. A thread that a plugin
starts by itself belongs to the only living call; while there are several, nobody can tell, and its questions are refused.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from typing import Any, Dict, Iterator, Optional

from .rpc import NO_METHOD, REFUSED, Peer, RPCError


class Call:
    """One call: its token, and what was found out for it, which counts until it ends."""

    def __init__(self, token: str):
        self.token = token
        self.found: Dict[Any, Any] = {}
        self.lock = threading.Lock()


_current: contextvars.ContextVar[Optional[Call]] = contextvars.ContextVar("agentenv_call", default=None)


class Calls:
    """The living calls of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: Dict[int, Call] = {}
        self._peer: Optional[Peer] = None

    def connect(self, peer: Peer) -> None:
        """Says whom questions go to."""
        self._peer = peer

    @contextlib.contextmanager
    def enter(self, token: str) -> Iterator[Call]:
        """Makes a call the current one of this thread."""
        call = Call(token)
        with self._lock:
            self._living[id(call)] = call
        mark = _current.set(call)
        try:
            yield call
        finally:
            _current.reset(mark)
            with self._lock:
                del self._living[id(call)]

    def current(self) -> Optional[Call]:
        """The call that this thread works for; None when that can't be told."""
        call = _current.get()
        if call is not None:
            return call
        with self._lock:
            living = list(self._living.values())
        return living[0] if len(living) == 1 else None

    def ask(self, method: str, params: Dict[str, Any]) -> Any:
        """Asks AgentEnv. Raises PermissionError for what it refuses, NotImplementedError for what it hasn't, and else RPCError."""
        call = self.current()
        if self._peer is None:
            raise PermissionError("nothing can be asked of AgentEnv here: this code doesn't run inside agent-env")
        if call is None:
            raise PermissionError(f"{method} was asked from outside of a call: ask where a step runs, or on a thread that asyncio.to_thread makes")
        try:
            return self._peer.call(method, {"call": call.token, **params})
        except RPCError as e:
            if e.code == REFUSED:
                raise PermissionError(e.message) from None
            if e.code == NO_METHOD:
                raise NotImplementedError(f"this agent-env has no {method}") from None
            raise

    def log(self, level: str, message: str) -> None:
        """Writes a line to the log of the current call, else to the program's own."""
        if self._peer is not None:
            call = self.current()
            self._peer.notify("log", {"level": level, "message": message, **({"call": call.token} if call else {})})
