"""The names that modules which also define servers import. Here they mark and describe alone: a server runs inside its own image, with the SDK there."""

from __future__ import annotations

from typing import Any, Callable, TypeVar, Union

from .types import EnvironmentCapabilities, EnvironmentCard

_F = TypeVar("_F", bound=Callable[..., Any])

MARK = "_agentenv_protocol"
"""The attribute that tells what a method was marked as."""


class AgentEnvEnvironment:
    """The base of servers. It can be derived from and not be served."""

    name: str = ""

    def __init__(self, *args: Any, **values: Any):
        del args, values

    def _build_card(self) -> EnvironmentCard:
        return EnvironmentCard(name=self.name or type(self).__name__, capabilities=EnvironmentCapabilities(extensions=[]))

    def create_app(self, *args: Any, **values: Any) -> Any:
        """Refuses: see the module."""
        del args, values
        raise NotImplementedError(_only_inside("an environment server"))

    run = serve = create_app


def _mark(what: str) -> Callable[[_F], _F]:
    def mark(function: _F) -> _F:
        setattr(function, MARK, what)
        return function

    return mark


reset_data = _mark("reset_data")
add_data = _mark("add_data")
get_data = _mark("get_data")


def extension(*args: Any, **values: Any) -> Any:
    """Marks a method as an extension's; with or without arguments."""
    return _maybe("extension", args, values)


def environment_card(*args: Any, **values: Any) -> Any:
    """Marks what describes a server; with or without arguments."""
    return _maybe("environment_card", args, values)


def _maybe(what: str, args: tuple, values: dict) -> Union[Any, Callable[[_F], _F]]:  # type: ignore[type-arg]
    if len(args) == 1 and not values and (callable(args[0]) or isinstance(args[0], type)):
        return _mark(what)(args[0])
    return _mark(what)


def _only_inside(what: str) -> str:
    return f"{what} runs inside its image, with the SDK for servers installed there; agent-env's plugin environment has the client alone"
