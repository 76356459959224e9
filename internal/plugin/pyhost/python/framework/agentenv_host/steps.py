"""Steps: read from their documents, checked and executed."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional

from agent_env.task_step import TaskStepContext

from .calls import Calls
from .diff import NotJSON, changes, plain
from .entries import Entries, NotLoaded
from .faults import explain, is_infra, one_line
from .rpc import BAD_PARAMS, CANCELLED, DEFECT, FAILED, Request, RPCError
from .tracked import Tracked

Problem = Dict[str, str]


class Steps:
    """Answers ``step/*`` for classes that derive from TaskStep."""

    def __init__(self, entries: Entries, calls: Calls):
        self._entries, self._calls = entries, calls

    def check(self, request: Request) -> Dict[str, Any]:
        """What is wrong with a step's document."""
        cls = self._class(request)
        document = Tracked(_object(request, "step"))
        try:
            step = cls.from_dict(document)
        except BaseException as e:  # noqa: B036
            return {"problems": [_unreadable(e)]}
        problems = [problem(f"field {name!r} is not one of {cls.type}", where=name, fix="remove it, or correct its spelling") for name in document.unread()]
        return {"problems": problems + self._ask(step, "config_problems", request)}

    def preflight(self, request: Request) -> Dict[str, Any]:
        """Why a step can't run here."""
        cls = self._class(request)
        try:
            step = cls.from_dict(_object(request, "step"))
        except BaseException as e:  # noqa: B036
            return {"problems": [_unreadable(e)]}
        return {"problems": self._ask(step, "preflight", request)}

    def execute(self, request: Request) -> Dict[str, Any]:
        """Executes a step and answers what it changed."""
        cls = self._class(request)
        document, given = _object(request, "step"), _object(request, "context")
        context = _context(given, request.params)
        before = plain(context.to_dict())
        with self._calls.enter(str(request.params.get("call", ""))):
            after = _guard(lambda: self._execute(cls, document, context, request), request)
        try:
            ops = changes(before, plain(after.to_dict()))
        except NotJSON as e:
            raise RPCError(DEFECT, f"{e} ({_source(cls, 'execute')})") from None
        return {"diff": ops}

    def _execute(self, cls: Any, document: Dict[str, Any], context: TaskStepContext, request: Request) -> TaskStepContext:
        from . import loops  # asyncio takes as long to import as all the rest, and checks do without

        step = cls.from_dict(document)
        result = loops.run(lambda: step.execute(context), request)
        if result is None:
            return context
        if not isinstance(result, TaskStepContext):
            raise RPCError(DEFECT, f"execute answered {type(result).__name__} and no context ({_source(cls, 'execute')})")
        return result

    def _ask(self, step: Any, method: str, request: Request) -> List[Problem]:
        found = getattr(step, method, None)
        if not callable(found):
            return []
        with self._calls.enter(str(request.params.get("call", ""))):
            try:
                answer = found()
                if inspect.iscoroutine(answer):
                    from . import loops

                    coroutine = answer
                    answer = loops.run(lambda: coroutine, request)
            except BaseException as e:  # noqa: B036
                return [problem(f"{method} failed: {explain(e)}")]
        return [as_problem(p) for p in ([answer] if isinstance(answer, (str, dict)) else answer or [])]

    def _class(self, request: Request) -> Any:
        return loaded(self._entries, request)


def loaded(entries: Entries, request: Request) -> Any:
    """The object of a request's entry. Raises RPCError."""
    entry = request.params.get("entry")
    if not isinstance(entry, dict):
        raise RPCError(BAD_PARAMS, "entry is missing")
    try:
        return entries.load(entry)
    except NotLoaded as e:
        where = f" ({e.place})" if e.place else ""
        raise RPCError(DEFECT, f"{entry.get('value')} {e.reason}{where}", {"code": e.code}) from None


def _guard(act: Callable[[], Any], request: Request) -> Any:
    """Does what a plugin wrote; whatever it raises becomes an error of the protocol."""
    try:
        return act()
    except RPCError:
        raise
    except BaseException as e:  # noqa: B036
        if request.cancelled.is_set() and type(e).__name__ == "CancelledError":
            raise RPCError(CANCELLED, "cancelled") from None
        raise failure(e) from None


guard = _guard


def failure(error: BaseException) -> RPCError:
    """The error of the protocol for work that failed."""
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        name = "TimeoutError"
    return RPCError(FAILED, explain(error), {"type": name, "infra": is_infra(error), "keep": False, "diff": []})


def problem(summary: str, where: str = "", fix: str = "", severity: str = "error") -> Problem:
    """A problem as the protocol has it."""
    out = {"summary": summary, "severity": severity}
    if where:
        out["where"] = where
    if fix:
        out["fix"] = fix
    return out


def as_problem(said: Any) -> Problem:
    """A problem from what a plugin said: a text, or an object with message and maybe where, fix and severity."""
    if isinstance(said, str):
        return problem(" ".join(said.split()))

    def member(*names: str) -> str:
        for name in names:
            value = said.get(name) if isinstance(said, dict) else getattr(said, name, None)
            if value:
                return " ".join(str(value).split())
        return ""

    summary = member("summary", "message", "text") or " ".join(str(said).split())
    severity = member("severity")
    return problem(summary, member("where", "field", "path"), member("fix", "hint"), severity if severity in ("error", "warning") else "error")


def _unreadable(error: BaseException) -> Problem:
    if isinstance(error, KeyError) and len(error.args) == 1 and isinstance(error.args[0], str):
        return problem("is missing", where=error.args[0])
    if isinstance(error, (ValueError, TypeError)):
        return problem(one_line(error))
    return problem(f"can't be read: {explain(error)}")


def _object(request: Request, name: str) -> Dict[str, Any]:
    value = request.params.get(name)
    if value is None and name == "context":
        return {}
    if not isinstance(value, dict):
        raise RPCError(BAD_PARAMS, f"{name} is missing, or is no object")
    return value


def _context(given: Dict[str, Any], params: Dict[str, Any]) -> TaskStepContext:
    """The context object, with what the request says beside the document: the run, and the models that people chose."""
    document = dict(given)
    run: Optional[str] = params.get("run")
    if run and not document.get("instance_id"):
        document["instance_id"] = run.rpartition("/")[2]
    models = params.get("models")
    if isinstance(models, dict) and models.get("solver") and not document.get("agent_model"):
        document["agent_model"] = models["solver"]
    try:
        return TaskStepContext.from_dict(document)
    except (TypeError, AttributeError, ValueError) as e:
        raise RPCError(BAD_PARAMS, f"the context can't be read: {one_line(e)}") from None


def _source(cls: Any, method: str) -> str:
    """Where a method of a class is written."""
    from .faults import relative

    code = getattr(getattr(cls, method, None), "__code__", None)
    return f"{relative(code.co_filename)}:{code.co_firstlineno}" if code is not None else f"{cls.__module__}.{cls.__qualname__}"
