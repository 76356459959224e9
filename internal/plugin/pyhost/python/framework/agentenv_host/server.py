"""The methods of the plugin protocol, and the life of the process that serves them."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Optional

from .calls import Calls
from .entries import Entries
from .logs import install
from .rpc import BAD_PARAMS, NO_METHOD, NO_VERSION, Peer, Request, RPCError
from .workers import Workers

PROTOCOL_VERSIONS = (1,)

LEAVE = 3.0
"""Seconds that calls have to end when AgentEnv has closed the connection."""

MAIN = frozenset({"command/run"})
"""Methods that need the main thread: signals and the terminal."""

Method = Callable[[Request], Any]


class Server:
    """Answers requests with what entries serve."""

    def __init__(self, entries: Entries, calls: Calls):
        self._entries, self._calls = entries, calls
        self._lock = threading.Lock()
        self._parts: Dict[str, Any] = {}
        self._started = False
        self._own: Dict[str, Method] = {"initialize": self._initialize, "load": self._load, "types/list": self._types}

    def handle(self, request: Request) -> Any:
        """Answers one request."""
        if not self._started and request.method != "initialize":
            raise RPCError(BAD_PARAMS, "initialize comes first")
        own = self._own.get(request.method)
        if own is not None:
            return own(request)
        family, _, verb = request.method.partition("/")
        part = self._part(family)
        method: Optional[Method] = getattr(part, verb, None) if verb in _VERBS.get(family, ()) else None
        if method is None:
            raise RPCError(NO_METHOD, f"there is no method {request.method}")
        return method(request)

    def _part(self, family: str) -> Any:
        """Who answers a family of methods. Modules are imported when their first request comes: most processes serve steps alone."""
        with self._lock:
            if family not in self._parts and family in _VERBS:
                self._parts[family] = _make(family)(self._entries, self._calls)
            return self._parts.get(family)

    def _initialize(self, request: Request) -> Dict[str, Any]:
        from agent_env import __version__

        offered = request.params.get("protocol_versions")
        common = [v for v in PROTOCOL_VERSIONS if isinstance(offered, list) and v in offered]
        if not common:
            raise RPCError(NO_VERSION, "no common version of the plugin protocol", {"supported": list(PROTOCOL_VERSIONS)})
        folder = request.params.get("temp_dir")
        if isinstance(folder, str) and os.path.isdir(folder):
            tempfile.tempdir = folder
        self._started = True
        return {"protocol_version": max(common), "plugin": {"name": "agentenv-framework", "version": __version__}}

    def _load(self, request: Request) -> Dict[str, Any]:
        entries = request.params.get("entries")
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise RPCError(BAD_PARAMS, "entries is no list of entries")
        return {"loaded": [self._entries.describe(e) for e in entries]}

    def _types(self, request: Request) -> Dict[str, Any]:
        del request
        from .installed import entry_points

        described = [self._entries.describe(e) for e in entry_points()]
        return {"types": [d["type"] for d in described if d["status"] == "active"]}


_VERBS: Dict[str, tuple] = {  # type: ignore[type-arg]
    "step": ("check", "preflight", "execute"),
    "env": ("check", "deploy", "reset", "close"),
    "artifact": ("check", "write"),
    "command": ("run",),
}


def _make(family: str) -> Any:
    if family == "step":
        from .steps import Steps

        return Steps
    if family == "env":
        from .envs import Envs

        return Envs
    if family == "artifact":
        from .artifacts import Artifacts

        return Artifacts
    from .commands import Commands

    return Commands


def serve(incoming: int, outgoing: int, terminal: bool) -> None:
    """Serves until AgentEnv closes the connection, then ends the process. With a terminal, commands run on the calling thread."""
    from agent_env import _host

    calls = Calls()
    server = Server(Entries(), calls)
    workers = Workers(MAIN if terminal else frozenset())
    peer = Peer(incoming, outgoing, server.handle, workers)
    calls.connect(peer)
    _host.connect(calls.ask, lambda: _kept(calls))
    if not terminal:
        install(calls)
        peer.run()
    else:
        reader = threading.Thread(target=lambda: (peer.run(), workers.close()), name="agentenv-reader", daemon=True)
        reader.start()
        workers.serve_main()
    _leave(peer)


def _kept(calls: Calls) -> Optional[Dict[Any, Any]]:
    call = calls.current()
    return None if call is None else call.found


def _leave(peer: Peer) -> None:
    """Ends the process when its calls have ended, or have had their time. Threads that a plugin left don't hold it."""
    deadline = time.monotonic() + LEAVE
    while peer.busy and time.monotonic() < deadline:
        time.sleep(0.02)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(0)
