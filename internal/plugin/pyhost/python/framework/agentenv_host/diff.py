"""What a step changed in its run's context document, as operations of the plugin protocol.

Paths go as deep as leaves room for steps that run at the same time: two names below ``metadata``, one elsewhere. A step that adds
``metadata["recordings"][id]`` doesn't undo what another adds beside it, and readers find whole values where they look for them.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List

from .faults import safe_repr

MAX_DEPTH = 200
"""How deep values may be nested: what is deeper mostly holds itself."""

MAX_OPS = 10_000
"""Operations of one step."""

DEEP = "metadata"

_ABSENT = object()

Op = Dict[str, Any]


class NotJSON(ValueError):
    """A value that no JSON document can hold; the message says where it is and what."""


def plain(value: Any, where: str = "") -> Any:
    """``value`` as JSON has it: a copy of dicts, lists, texts, numbers, true, false and null. Raises NotJSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))  # some ten times as fast as what follows
    except (TypeError, ValueError, RecursionError):
        pass
    return _plain(value, where, 0)


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotJSON(f"{where.split('/')[0]} is nested deeper than {MAX_DEPTH} levels, or holds itself")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise NotJSON(f"{where} is {value}, which JSON has no number for")
    if isinstance(value, dict):
        return {_key(k, where): _plain(v, child(where, _key(k, where)), depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, child(where, str(i)), depth + 1) for i, v in enumerate(value)]
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict) and not isinstance(value, type):
        return _plain(to_dict(), where, depth + 1)
    raise NotJSON(f"{where} is {_a(type(value).__name__)} ({safe_repr(value)[:80]}), which a JSON document can't hold")


def changes(before: Dict[str, Any], after: Dict[str, Any]) -> List[Op]:
    """The operations that make ``after`` of ``before``; both hold plain values alone."""
    ops: List[Op] = []
    try:
        _objects(before, after, "", 0, ops)
    except RecursionError:
        raise NotJSON("the context is nested too deep") from None
    if len(ops) > MAX_OPS:
        return _whole(before, after)
    return ops


def child(path: str, name: str) -> str:
    """The path of ``name`` below ``path``."""
    name = name.replace("%", "%25").replace("/", "%2F")
    return f"{path}/{name}" if path else name


def _objects(before: Dict[str, Any], after: Dict[str, Any], path: str, depth: int, ops: List[Op]) -> None:
    for name in before:
        if name not in after:
            ops.append({"op": "unset", "path": child(path, name)})
    for name, new in after.items():
        _value(before.get(name, _ABSENT), new, child(path, name), depth + 1, ops)


def _value(old: Any, new: Any, path: str, depth: int, ops: List[Op]) -> None:
    if same(old, new):
        return
    if isinstance(new, dict) and new and depth < _depth(path):
        if old is _ABSENT or isinstance(old, dict):
            _objects({} if old is _ABSENT else old, new, path, depth, ops)
            return
    if isinstance(new, list) and isinstance(old, list) and len(new) > len(old) and same(old, new[: len(old)]):
        ops.extend({"op": "append", "path": path, "value": v} for v in new[len(old):])
        return
    ops.append({"op": "set", "path": path, "value": new})


def _depth(path: str) -> int:
    return 3 if path == DEEP or path.startswith(DEEP + "/") else 1


def _whole(before: Dict[str, Any], after: Dict[str, Any]) -> List[Op]:
    ops: List[Op] = [{"op": "unset", "path": child("", name)} for name in before if name not in after]
    return ops + [{"op": "set", "path": child("", k), "value": v} for k, v in after.items() if not same(before.get(k, _ABSENT), v)]


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same document: 1 and true aren't, 1 and 1.0 aren't."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def _key(key: Any, where: str) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return str(key)
    raise NotJSON(f"{where or 'the context'} has the name {safe_repr(key)[:80]}, which is {_a(type(key).__name__)} and no text")


def _a(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


__all__ = ["NotJSON", "Op", "changes", "child", "plain", "same"]
