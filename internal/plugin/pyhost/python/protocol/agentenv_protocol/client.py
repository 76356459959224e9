"""Talks to environment servers: their card, their data plane, their extensions.

Addresses are joined by appending, since a server may stand below a path. Where a function takes a card, a dict and an EnvironmentCard both do.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .errors import DataPlaneError, HTTPStatusError, Late, Unreachable
from .transport import json_of
from .types import RPC_PATH, WELL_KNOWN_PATH, DataResult, Record, part

CARD_TIMEOUT = 10.0
RESET_TIMEOUT = 30.0
ADD_TIMEOUT = 120.0
GET_TIMEOUT = 30.0
EXTENSION_TIMEOUT = 30.0


def find_extension(card: Any, uri: str) -> Optional[Dict[str, Any]]:
    """What a card says of an extension; None when it doesn't have it. Children aren't searched."""
    capabilities = _document(card).get("capabilities") or {}
    for extension in _document(capabilities).get("extensions") or []:
        document = _document(extension)
        if document.get("uri") == uri:
            return document
    return None


async def get_card(base_url: str, *, timeout: float = CARD_TIMEOUT) -> Dict[str, Any]:
    """The card of the environment at an address."""
    card = await json_of("GET", _join(base_url, WELL_KNOWN_PATH), timeout=timeout)
    if not isinstance(card, dict):
        raise ValueError("the environment's card is no object")
    return card


async def invoke_extension(
    base_url: str,
    card: Any,
    uri: str,
    params: Optional[Dict[str, Any]] = None,
    *,
    timeout: Optional[float] = EXTENSION_TIMEOUT,
    method: Optional[str] = None,
    headers: Optional[Dict[str, str]] = None,
) -> Any:
    """Calls an extension, ``method`` being one of several that it has, and answers what it returned.

    Raises LookupError when the card doesn't have it, HTTPStatusError when it refuses, Unreachable and Late when it doesn't answer.
    """
    extension = find_extension(card, uri)
    if extension is None:
        raise LookupError(f"the environment's card has no {uri}")
    verb, path = _route(uri, extension, method)
    given = {k: v for k, v in (params or {}).items()}
    if verb == "GET":
        return await json_of(verb, _join(base_url, path), query=given, timeout=timeout, headers=headers)
    return await json_of(verb, _join(base_url, path), body=given, timeout=timeout, headers=headers)


async def reset_data(base_url: str, *, timeout: Optional[float] = RESET_TIMEOUT) -> None:
    """Puts the environment's data back to what it starts with."""
    await _rpc(base_url, "data/reset", {}, timeout)


async def add_data(base_url: str, parts: Sequence[Any], *, timeout: Optional[float] = ADD_TIMEOUT) -> None:
    """Gives the environment data, as parts of the protocol."""
    documents = [p.model_dump(exclude_none=True) if isinstance(p, Record) else p for p in parts]
    await _rpc(base_url, "data/add", {"parts": documents}, timeout)


async def get_data(base_url: str, write_namespace: Optional[Dict[str, Any]] = None, *, timeout: Optional[float] = GET_TIMEOUT) -> DataResult:
    """The environment's data: ``parts``, each with ``kind`` and ``data``, ``text`` or ``file``."""
    params = {"write_namespace": write_namespace} if write_namespace is not None else {}
    result = await _rpc(base_url, "data/get", params, timeout)
    documents = result.get("parts") if isinstance(result, dict) else None
    parts: List[Any] = [part(p) for p in documents or [] if isinstance(p, dict)]
    return DataResult(parts=parts)


async def _rpc(base_url: str, method: str, params: Dict[str, Any], timeout: Optional[float]) -> Any:
    answer = await json_of("POST", _join(base_url, RPC_PATH), body={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, timeout=timeout)
    if not isinstance(answer, dict):
        raise DataPlaneError(f"{method}: the answer is no JSON-RPC message", -32603)
    error = answer.get("error")
    if isinstance(error, dict):
        data = error.get("data") if isinstance(error.get("data"), dict) else {}
        detail = data.get("detail")
        message = f"{error.get('message', '')}: {detail}" if detail else str(error.get("message", ""))
        raise DataPlaneError(f"{method}: {message}", int(error.get("code", -32603)), data.get("code"))
    return answer.get("result")


def _route(uri: str, extension: Dict[str, Any], method: Optional[str]) -> "tuple[str, str]":
    params = extension.get("params") or {}
    methods: Dict[str, Any] = params.get("methods") or {}
    if method is None:
        chosen = next(iter(methods.values())) if len(methods) == 1 else {}
        if len(methods) > 1 and not params.get("endpoint"):
            raise LookupError(f"{uri} has the methods {', '.join(methods)}: name one")
    elif method in methods:
        chosen = methods[method] or {}
    else:
        raise LookupError(f"{uri} has no method {method}" + (f"; it has {', '.join(methods)}" if methods else ""))
    path = chosen.get("endpoint") or params.get("endpoint")
    if not path:
        raise LookupError(f"{uri} names no endpoint to call")
    return str(chosen.get("method") or "POST").upper(), str(path)


def _join(base_url: str, path: str) -> str:
    return base_url.rstrip("/") + "/" + path.lstrip("/")


def _document(value: Any) -> Dict[str, Any]:
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else {}


__all__ = [
    "DataPlaneError",
    "HTTPStatusError",
    "Late",
    "Unreachable",
    "add_data",
    "find_extension",
    "get_card",
    "get_data",
    "invoke_extension",
    "reset_data",
]
