"""Artifact types: their configurations checked, and what is stored of them."""

from __future__ import annotations

from typing import Any, Dict, List

from . import loops
from .calls import Calls
from .diff import NotJSON, plain
from .entries import Entries
from .faults import explain
from .rpc import DEFECT, Request, RPCError
from .steps import as_problem, guard, loaded, problem


class Artifacts:
    """Answers ``artifact/*`` for classes that derive from Artifact.

    A class says its fields by annotations. It may have ``check(config, files)``, which answers problems, and ``write(id, config, files)``,
    which answers ``body`` and ``files``; without it the configuration is the body and the files are stored as they are.
    """

    def __init__(self, entries: Entries, calls: Calls):
        self._entries, self._calls = entries, calls

    def check(self, request: Request) -> Dict[str, Any]:
        """What is wrong with an artifact's configuration."""
        cls = loaded(self._entries, request)
        config, files = request.params.get("config") or {}, request.params.get("files") or []
        known = fields_of(cls)
        found = [problem(f"field {k!r} is not one of {cls.type}", where=k, fix="remove it, or correct its spelling") for k in sorted(config) if known and k not in known]
        found += [problem("is missing", where=k) for k, needed in sorted(known.items()) if needed and k not in config]
        own = getattr(cls, "check", None)
        if callable(own):
            try:
                found += [as_problem(p) for p in own(dict(config), list(files)) or []]
            except BaseException as e:  # noqa: B036
                found.append(problem(f"check failed: {explain(e)}"))
        return {"problems": found}

    def write(self, request: Request) -> Dict[str, Any]:
        """What is to be stored."""
        cls = loaded(self._entries, request)
        config, files = dict(request.params.get("config") or {}), list(request.params.get("files") or [])
        own = getattr(cls, "write", None)
        if not callable(own):
            return {"body": config, "files": files}
        with self._calls.enter(str(request.params.get("call", ""))):
            answer = guard(lambda: loops.run(lambda: own(request.params.get("id"), config, files), request), request)
        try:
            return {"body": plain(answer["body"], "body"), "files": plain(answer.get("files", files), "files")}
        except (NotJSON, KeyError, TypeError, AttributeError) as e:
            raise RPCError(DEFECT, f"write of {cls.__module__}.{cls.__qualname__} answered no body: {e}") from None


def fields_of(cls: Any) -> Dict[str, bool]:
    """The fields that a type names with annotations, and whether each must be given. Those of our own classes aren't among them."""
    out: Dict[str, bool] = {}
    mro: List[Any] = [c for c in cls.__mro__ if not c.__module__.startswith("agent_env.") and c is not object]
    for c in reversed(mro):
        for name, annotation in c.__dict__.get("__annotations__", {}).items():
            if not name.startswith("_") and name not in ("type", "kind") and "ClassVar" not in str(annotation):
                out[name] = not hasattr(cls, name)
    return out
