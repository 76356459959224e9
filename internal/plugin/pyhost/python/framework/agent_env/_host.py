"""The link to the running agent-env. The Python host makes it before plugins are imported; everything else in this package asks through it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

Ask = Callable[[str, Dict[str, Any]], Any]
Found = Callable[[], Optional[Dict[Any, Any]]]

_ask: Optional[Ask] = None
_found: Optional[Found] = None


def connect(ask: Ask, found: Found) -> None:
    """Sets who is asked, and where what was found out for the current call is kept until it ends."""
    global _ask, _found
    _ask, _found = ask, found


def ask(method: str, **params: Any) -> Any:
    """Asks agent-env. Raises PermissionError for what it refuses, NotImplementedError for what it hasn't."""
    if _ask is None:
        raise RuntimeError("agent_env is AgentEnv's interface for plugins: it works inside agent-env, as in `agent-env run`, and not by itself")
    return _ask(method, {k: v for k, v in params.items() if v is not None})


def found() -> Dict[Any, Any]:
    """What was found out for the current call; outside of calls, nothing that lasts."""
    kept = _found() if _found is not None else None
    return {} if kept is None else kept
