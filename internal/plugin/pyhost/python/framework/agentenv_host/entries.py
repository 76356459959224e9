"""Imports what entry points name, and checks that it is what their group needs."""

from __future__ import annotations

import importlib
import inspect
import threading
import typing
from typing import Any, Callable, Dict, List, Optional, Tuple

from .faults import OWN, place_of, safe_repr

STEPS, ENVS, ARTIFACTS = "agent_env.task_steps", "agent_env.envs", "agent_env.artifacts"
SANDBOX_PROVIDERS, STATE_PROVIDERS, ENV_PROVIDERS = "agent_env.sandbox_providers", "agent_env.state_providers", "agent_env.env_providers"
COMMANDS, OPTIONS, EXPLORER, BUNDLES = "agent_env.cli_plugins", "agent_env.cli_root_options", "agent_env.explorer_plugins", "agent_env.bundles"

LOAD_FAILED, INVALID = "load-failed", "invalid-plugin"

Entry = Dict[str, str]


class NotLoaded(Exception):
    """An entry that can't be used: a code of the plugin contract, and the reason for people."""

    def __init__(self, code: str, reason: str, place: str = ""):
        super().__init__(reason)
        self.code, self.reason, self.place = code, reason, place


class Entries:
    """What was loaded in this process. A load is done once; one that failed is tried again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Dict[Tuple[str, str, str], Any] = {}

    def load(self, entry: Entry) -> Any:
        """The object of an entry. Raises NotLoaded."""
        key = (str(entry.get("group", "")), str(entry.get("name", "")), str(entry.get("value", "")))
        with self._lock:
            if key in self._loaded:
                return self._loaded[key]
        found = _import(key[2])
        check = _CHECKS.get(key[0])
        if check is None:
            raise NotLoaded(INVALID, failed(TypeError(f"{key[0]} is no group that Python objects serve")))
        try:
            check(found, key[1])
        except NotLoaded:
            raise
        except BaseException as e:  # noqa: B036 - checks look at attributes of plugins, which may raise anything
            raise NotLoaded(INVALID, failed(e), place_of(e)) from None
        with self._lock:
            self._loaded[key] = found
        return found

    def describe(self, entry: Entry, callbacks: bool = False) -> Dict[str, Any]:
        """What the protocol's ``load`` answers for an entry. With ``callbacks`` an option's is called, as when nobody gives the option."""
        said = {k: entry.get(k, "") for k in ("group", "name", "value")}
        try:
            found = self.load(entry)
            out = {**said, "status": "active", "type": type_of(found, said["group"], said["name"])}
            if callbacks and said["group"] == OPTIONS:
                out.update(_callback(found))
            return out
        except NotLoaded as e:
            return {**said, "status": "failed", "code": e.code, "reason": e.reason, **({"where": e.place} if e.place else {})}
        except BaseException as e:  # noqa: B036
            return {**said, "status": "failed", "code": INVALID, "reason": failed(e), **({"where": place_of(e)} if place_of(e) else {})}


BROUGHT_ELSEWHERE = frozenset({"a2a", "anyio", "click", "fastapi", "httpx", "jinja2", "mcp", "pydantic", "rich", "starlette", "yaml"})
"""What plugins find by chance where another framework brings it."""


def failed(error: BaseException) -> str:
    """How reasons of failed loads are worded."""
    return f"failed to load: {safe_repr(error)}{_hint(error)}"


def _hint(error: BaseException) -> str:
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    top = name.partition(".")[0]
    if top in OWN:
        return f"; what agent-env offers to plugins has no {name}"
    if top in BROUGHT_ELSEWHERE:
        return f"; agentenv-framework brings no {top}: the package must require it, or it is added with it, as in `agent-env plugin add PACKAGE {top}`"
    return ""


def type_of(found: Any, group: str, name: str) -> Dict[str, Any]:
    """What the protocol says of a type. A class has no schema unless it has one as ``json_schema``: only its own code knows its fields."""
    own = getattr(found, "type", "")
    out: Dict[str, Any] = {"group": group, "name": name or (own if isinstance(own, str) else "")}
    doc = inspect.getdoc(found) if inspect.isclass(found) else getattr(found, "help", None) or getattr(found, "short_help", None)
    if inspect.isclass(found) and "__doc__" not in found.__dict__:
        doc = None
    first = " ".join(str(doc or "").split("\n\n")[0].split())
    if first:
        out["description"] = first
    schema = found.__dict__.get("json_schema") if inspect.isclass(found) else None
    if isinstance(schema, dict):
        out["schema"] = schema
    refs = found.__dict__.get("entity_refs") if inspect.isclass(found) else None
    if refs:
        out["refs"] = [r.document() for r in refs]
    if getattr(found, "scores", None) is True:
        out["scores"] = True
    if group == OPTIONS:
        out["option"] = option_of(found)
    if group == ARTIFACTS and own != name:
        out["alias_of"] = own
    return out


def _callback(found: Any) -> Dict[str, Any]:
    """What a callback does when its option isn't given: nothing, or it raises."""
    try:
        alone(found, lambda: None).main(args=[], prog_name="agent-env", standalone_mode=False)
    except BaseException as e:  # noqa: B036 - SystemExit included
        return {"status": "failed", "code": LOAD_FAILED, "reason": failed(e) + "; raised by its callback where the option isn't given", **({"where": place_of(e)} if place_of(e) else {})}
    return {}


def alone(option: Any, passed: Callable[[], Any]) -> Any:
    """A command that has one option and tells when it got past it."""
    click = importlib.import_module("click")
    return click.Command("agent-env", params=[option], callback=passed, add_help_option=False)


def option_of(found: Any) -> Dict[str, Any]:
    """What the command line must know of an option: its flags, whether a value follows, and which object it is within this process."""
    takes = not found.is_flag and not found.count
    return {"help": str(found.help or ""), "flags": [*found.opts, *found.secondary_opts], "value": takes, "metavar": str(found.metavar or found.type.name).upper() if takes else "", "object": id(found)}


def _import(value: str) -> Any:
    module, _, attribute = value.partition("[")[0].strip().partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
    except BaseException as e:  # noqa: B036 - SystemExit included: a module must not end the process that asks for it
        raise NotLoaded(LOAD_FAILED, failed(e), place_of(e)) from None
    return found


def _derives(base: Callable[[], type], needs: str) -> Callable[[Any, str], type]:
    def check(found: Any, name: str) -> type:
        del name
        want = base()
        if not inspect.isclass(found) or not issubclass(found, want):
            raise TypeError(f"{_called(found)} is no class that derives from {needs}")
        return found

    return check


def _named(found: Any, name: str) -> None:
    # A class that the configuration names has no entry point, and goes by its own name.
    if name and getattr(found, "type", None) != name:
        raise TypeError(f"{_called(found)} has the type {getattr(found, 'type', None)!r}, and its entry point must have that name, not {name!r}")


def _overrides(found: type, base: type, *names: str) -> None:
    missing = [n for n in names if _plain(getattr(found, n, None)) is _plain(getattr(base, n, None))]
    if missing:
        raise TypeError(f"{_called(found)} has no {' and no '.join(missing)} of its own")


def _plain(value: Any) -> Any:
    return getattr(value, "__func__", value)


def _step(found: Any, name: str) -> None:
    from agent_env.task_step.registry import get_task_step_registry
    from agent_env.task_step.task_step import TaskStep

    _derives(lambda: TaskStep, "agent_env.task_step.task_step.TaskStep")(found, name)
    _overrides(found, TaskStep, "execute")
    if not callable(getattr(found, "from_dict", None)):
        raise TypeError(f"{_called(found)} has no from_dict")
    _named(found, name)
    get_task_step_registry()[name] = found


def _env(found: Any, name: str) -> None:
    from agent_env.env import Env

    _derives(lambda: Env, "agent_env.env.Env")(found, name)
    if not found.type:
        raise TypeError(f"{_called(found)} has no type of its own")
    _named(found, name)


def _artifact(found: Any, name: str) -> None:
    from agent_env.artifact import Artifact

    _derives(lambda: Artifact, "agent_env.artifact.Artifact")(found, name)
    own = getattr(found, "type", "")
    if not own or not isinstance(own, str):
        raise TypeError(f"{_called(found)} has no default of the field type")
    if not name or name == own:
        return
    older = _spellings(found)
    if older and name not in older:
        raise NotLoaded("alias-refused", failed(TypeError(f"{_called(found)} has the type {own!r}, whose spellings are {', '.join(map(repr, older))}, and not {name!r}")))
    if not older:
        _named(found, name)


def _spellings(found: type) -> Tuple[Any, ...]:
    """The names that the field ``type`` of an artifact's class may have, where it is a Literal: its own and older ones."""
    try:
        hint = typing.get_type_hints(found).get("type")
    except Exception:  # noqa: BLE001 - annotations of plugins may name anything
        return ()
    if typing.get_origin(hint) is typing.ClassVar:
        hint = (typing.get_args(hint) or (None,))[0]
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _command(found: Any, name: str) -> None:
    del name
    click = importlib.import_module("click")
    kinds: List[type] = [k for k in (getattr(click, "Command", None), getattr(click, "BaseCommand", None)) if inspect.isclass(k)]
    if not isinstance(found, tuple(kinds)):
        raise TypeError(f"{_called(found)} is no click command")


def _option(found: Any, name: str) -> None:
    del name
    click = importlib.import_module("click")
    if not isinstance(found, click.Option):
        raise TypeError(f"{_called(found)} is no click option")
    if found.required:
        raise TypeError(f"{_called(found)} is required, and an option of agent-env itself must not be")
    if found.nargs != 1 and not found.is_flag:
        raise TypeError(f"{_called(found)} takes {found.nargs} values, and an option of agent-env itself takes one or none")
    if found.expose_value:
        raise TypeError(f"{_called(found)} must have expose_value=False: what it gives goes to its callback")


def _not_here(what: str) -> Callable[[Any, str], None]:
    def check(found: Any, name: str) -> None:
        del found, name
        raise TypeError(f"{what} of Python plugins aren't served by this agent-env")

    return check


_CHECKS: Dict[str, Callable[[Any, str], Optional[Any]]] = {
    STEPS: _step,
    ENVS: _env,
    ARTIFACTS: _artifact,
    COMMANDS: _command,
    OPTIONS: _option,
    SANDBOX_PROVIDERS: _not_here("providers of sandboxes"),
    STATE_PROVIDERS: _not_here("providers of states"),
    ENV_PROVIDERS: _not_here("providers of environments"),
    EXPLORER: _not_here("pages of the explorer"),
}


def _called(found: Any) -> str:
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    return f"{module}.{name}" if module and name else safe_repr(found)[:200]
