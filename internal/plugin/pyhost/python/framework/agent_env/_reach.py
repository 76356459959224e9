"""How this machine reaches environments and agents: asked when first needed, and valid for the call that asked."""

from __future__ import annotations

from typing import Any, Dict, Optional

from agentenv_protocol import transport

from . import _host


def environment(env_id: str, step: str) -> Dict[str, Any]:
    """``environment_url`` and ``mcp_url`` of a deployed environment."""
    key = ("env", env_id, step)
    kept = _host.found()
    if key not in kept:
        answer = _host.ask("host/env.connect", env_id=env_id, env_step_id=step or None)
        for name in ("environment_url", "mcp_url"):
            _remember(kept, answer.get(name), answer.get("headers"))
        kept[key] = answer
    return kept[key]


def agent(name: str, url: Optional[str]) -> Optional[str]:
    """The address of a deployed agent, a door's where it runs in a sandbox; ``url`` is what the context says of it."""
    key = ("agent", name)
    kept = _host.found()
    if key not in kept:
        try:
            answer = _host.ask("host/agent.connect", agent_name=name)
        except (PermissionError, NotImplementedError):
            return address(url) if url else None
        _remember(kept, answer.get("a2a_url"), answer.get("headers"))
        kept[key] = answer
    return kept[key].get("a2a_url")


def address(url: str) -> str:
    """The address at which this machine reaches what a sandbox or an environment calls ``url``."""
    key = ("url", url)
    kept = _host.found()
    if key not in kept:
        try:
            answer = _host.ask("host/url.reach", url=url)
        except (PermissionError, NotImplementedError):
            answer = {"url": url}
        _remember(kept, answer.get("url"), answer.get("headers"))
        kept[key] = answer
    return str(kept[key].get("url") or url)


def headers(url: str) -> Dict[str, str]:
    """The headers that ``url`` needs, where this call has found out."""
    best, out = "", {}
    for key, value in list(_host.found().items()):
        if key[0] == "headers" and len(key[1]) > len(best) and (url == key[1] or url.startswith(key[1].rstrip("/") + "/")):
            best, out = key[1], value
    return dict(out)


def _remember(kept: Dict[Any, Any], url: Any, headers: Any) -> None:
    if url and headers:
        kept["headers", str(url)] = dict(headers)


transport.provide_headers(headers)
