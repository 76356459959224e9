"""Environment types: checked, deployed, put back and ended."""

from __future__ import annotations

import inspect
from typing import Any, Dict

from . import loops
from .calls import Calls
from .diff import NotJSON, plain
from .entries import Entries
from .faults import explain
from .rpc import BAD_PARAMS, DEFECT, Request, RPCError
from .steps import as_problem, guard, loaded, problem


class Envs:
    """Answers ``env/*`` for classes that derive from Env."""

    def __init__(self, entries: Entries, calls: Calls):
        self._entries, self._calls = entries, calls

    def check(self, request: Request) -> Dict[str, Any]:
        """What is wrong with an environment's document."""
        cls = loaded(self._entries, request)
        try:
            env = cls.from_dict(dict(_object(request, "env")))
            found = getattr(env, "config_problems", None)
            return {"problems": [as_problem(p) for p in (found() if callable(found) else None) or []]}
        except BaseException as e:  # noqa: B036
            return {"problems": [problem(f"can't be read: {explain(e)}")]}

    def deploy(self, request: Request) -> Dict[str, Any]:
        """Starts an instance."""
        cls = loaded(self._entries, request)
        document, options = dict(_object(request, "env")), dict(request.params.get("options") or {})
        if request.params.get("files"):
            options["files"] = {f["path"]: f["file"] for f in request.params["files"]}

        async def act() -> Any:
            env = cls.from_dict(document)
            return await loops.awaited(env.deploy(**_taken(env.deploy, options)))

        deployed = self._do(request, act)
        try:
            state = plain(deployed.to_dict())
            env = {"environment_url": deployed.environment_url, "mcp_url": deployed.mcp_url, "metadata": plain(deployed.metadata)}
            headers = getattr(deployed, "headers", None)
            if getattr(deployed, "reads_files", False):
                env["reads_files"] = True
        except (NotJSON, AttributeError) as e:
            raise RPCError(DEFECT, f"deploy of {cls.__module__}.{cls.__qualname__} answered no deployed environment: {e}") from None
        return {"env": {**env, **({"headers": plain(headers)} if headers else {})}, "state": state}

    def reset(self, request: Request) -> Dict[str, Any]:
        """Puts an instance back to its first state."""
        return self._again(request, lambda env, deployed: env.reset(deployed))

    def close(self, request: Request) -> Dict[str, Any]:
        """Ends an instance."""
        return self._again(request, lambda env, deployed: env.close())

    def _again(self, request: Request, what: Any) -> Dict[str, Any]:
        from agent_env.env.env import deployed_env

        cls = loaded(self._entries, request)
        deployed = deployed_env(_object(request, "state"))

        async def act() -> None:
            env = await loops.awaited(cls.from_deployed_env(deployed))
            await loops.awaited(what(env, deployed))

        self._do(request, act)
        return {}

    def _do(self, request: Request, act: Any) -> Any:
        with self._calls.enter(str(request.params.get("call", ""))):
            return guard(lambda: loops.run(act, request), request)


def _taken(function: Any, options: Dict[str, Any]) -> Dict[str, Any]:
    """Of ``options``, those that a function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(options)
    names = {p.name for p in parameters}
    return {k: v for k, v in options.items() if k in names}


def _object(request: Request, name: str) -> Dict[str, Any]:
    value = request.params.get(name)
    if not isinstance(value, dict):
        raise RPCError(BAD_PARAMS, f"{name} is missing, or is no object")
    return value
