"""Paths, words and cards of the environment protocol, as plain classes."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Type, TypeVar

MCP_PATH = "/mcp"
MCP_TRANSPORT = "mcp"
WELL_KNOWN_PATH = "/.well-known/agent-env.json"
RPC_PATH = "/agentenv"

ROLE_HEADER = "AgentEnv-Role"

_R = TypeVar("_R", bound="Record")


class Record:
    """Named values with defaults. Names that a class doesn't know are kept, so that a document comes out as it went in."""

    _defaults: Dict[str, Any] = {}

    def __init__(self, **values: Any):
        for name, default in self._defaults.items():
            setattr(self, name, values.pop(name, list(default) if isinstance(default, list) else default))
        for name, value in values.items():
            setattr(self, name, value)

    @classmethod
    def model_validate(cls: Type[_R], document: Dict[str, Any]) -> _R:
        """One from a document."""
        return cls(**document)

    def model_copy(self: _R, update: Optional[Dict[str, Any]] = None) -> _R:
        """A copy with other values in some places."""
        return type(self)(**{**self.__dict__, **(update or {})})

    def model_dump(self, exclude_none: bool = False, **_: Any) -> Dict[str, Any]:
        """The document of it."""
        out = {k: _dump(v, exclude_none) for k, v in self.__dict__.items()}
        return {k: v for k, v in out.items() if v is not None} if exclude_none else out

    def to_dict(self) -> Dict[str, Any]:
        """The document of it."""
        return self.model_dump()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


def _dump(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, Record):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, list):
        return [_dump(v, exclude_none) for v in value]
    return value


class EnvironmentInterface(Record):
    """One way to reach an environment: a path below its address, and what is spoken there."""

    _defaults = {"url": "", "transport": MCP_TRANSPORT}


class EnvironmentExtension(Record):
    """Something that an environment can do beyond the protocol, named by a URI."""

    _defaults = {"uri": "", "description": None, "params": None, "required": None}


class EnvironmentCapabilities(Record):
    """What an environment can do."""

    _defaults = {"extensions": None, "tools": None, "operations": None}


class EnvironmentCard(Record):
    """What an environment says of itself."""

    _defaults = {
        "name": "",
        "protocolVersion": "1.0",
        "url": RPC_PATH,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": None,
        "capabilities": None,
        "children_environments": None,
    }


class TextPart(Record):
    """A part that is text."""

    _defaults = {"kind": "text", "text": "", "metadata": None}


class DataPart(Record):
    """A part that is an object."""

    _defaults = {"kind": "data", "data": {}, "metadata": None}


class FilePart(Record):
    """A part that is a file: ``file`` holds ``bytes`` as base64 or a ``uri``, and maybe ``mimeType`` and ``name``."""

    _defaults = {"kind": "file", "file": {}, "metadata": None}


PARTS: Dict[str, Type[Record]] = {"text": TextPart, "data": DataPart, "file": FilePart}


class DataResult(Record):
    """What an environment's data plane answered: its parts in order."""

    _defaults: Dict[str, Any] = {"parts": []}
    parts: List[Any]


def part(document: Dict[str, Any]) -> Record:
    """The part that a document describes. A kind that isn't known is kept as it is."""
    return PARTS.get(str(document.get("kind")), Record)(**document)


def error_body(code: str, message: str, retryable: bool = False, applied: str = "no", hint: Optional[str] = None) -> Dict[str, Any]:
    """How a server words a refusal of an extension."""
    error: Dict[str, Any] = {"code": code, "message": message, "retryable": retryable, "applied": applied}
    if hint is not None:
        error["hint"] = hint
    return {"ok": False, "error": error}
