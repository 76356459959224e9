"""Addresses between sandboxes and this machine."""

from __future__ import annotations

from typing import Dict, Optional

from ... import _reach


def reachable_url(url: str, from_sandbox_type: Optional[str] = None, to_sandbox_type: Optional[str] = None) -> str:
    """The address for ``url``. It is reached by the same one from wherever AgentEnv deploys agents, so it comes back unchanged."""
    del from_sandbox_type, to_sandbox_type
    return url


def sandbox_request_headers_for_url(url: str) -> Optional[Dict[str, str]]:
    """The headers that ``url`` needs; None when it needs none."""
    return _reach.headers(url) or None
