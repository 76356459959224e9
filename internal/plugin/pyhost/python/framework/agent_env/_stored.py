"""Stored things: artifacts, environments and agents. Each is an id, a version, a type and a body; some have files."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from typing import Any, ClassVar, Dict, Generic, List, Optional, Type, TypeVar

from . import _host
from ._record import Record

_S = TypeVar("_S", bound="Stored")

LIMIT = 1000
"""How many things a query answers at most."""


class NotStored(LookupError):
    """Nothing of this id is stored."""


class Stored(Record):
    """Something that is stored. Members that aren't known yet are read when they are asked for."""

    kind: ClassVar[str] = "artifact"
    type: ClassVar[str] = ""

    def __init__(self, **members: Any):
        self._read = False
        super().__init__(**members)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and self.__dict__.get("_lazy") and not self._read:
            self._fill()
            if name in self.__dict__:
                return self.__dict__[name]
        return super().__getattr__(name)

    @classmethod
    def get(cls: Type[_S], id: str, version: Optional[int] = None) -> _S:
        """The thing of an id, in its latest version or in a certain one. Raises NotStored."""
        try:
            answer = _host.ask("host/artifact.get", kind=cls.kind, id=id, version=version or 0, files=False)
        except PermissionError as e:
            raise NotStored(str(e)) from None
        made = cls.of(answer)
        made._read = True
        return made

    @classmethod
    def of(cls: Type[_S], answer: Dict[str, Any]) -> _S:
        """The object for what a store answers."""
        members = {k: v for k, v in (answer.get("body") or {}).items() if isinstance(k, str) and not k.startswith("_")}
        made = cls.__new__(cls)
        Stored.__init__(made, **{**members, "id": answer.get("id"), "version": answer.get("version")})
        made.__dict__["_lazy"] = True
        made.__dict__["stored_type"] = answer.get("type") or cls.type
        return made

    @classmethod
    def query(cls: Type[_S]) -> "Query[_S]":
        """A question for things of this kind."""
        return Query(cls)

    @classmethod
    def store(cls: Type[_S], id: str, body: Dict[str, Any], files: Optional[List[Dict[str, str]]] = None, type: Optional[str] = None) -> _S:
        """Stores a new version. ``files`` are paths in it and files of this machine."""
        given = {k: v for k, v in body.items() if v is not None}
        answer = _host.ask("host/artifact.put", kind=cls.kind, id=id, type=type or cls.type, body=given, files=files or [])
        return cls.of({"id": answer.get("id", id), "version": answer.get("version"), "type": type or cls.type, "body": given})

    def _fill(self) -> None:
        self._read = True
        answer = _host.ask("host/artifact.get", kind=self.kind, id=self.id, version=self.version or 0, files=False)
        for name, value in (answer.get("body") or {}).items():
            if not name.startswith("_"):
                self.__dict__.setdefault(name, value)

    def fetch(self) -> Dict[str, bytes]:
        """The bytes of its files, by path."""
        answer = _host.ask("host/artifact.get", kind=self.kind, id=self.id, version=self.version or 0, files=True)
        return {f["path"]: read_and_drop(f["file"]) for f in answer.get("files") or []}


class Query(Generic[_S]):
    """A question for stored things, answered by execute()."""

    def __init__(self, cls: Type[_S]):
        self._cls = cls
        self._type: Optional[str] = cls.type or None
        self._prefix: Optional[str] = None

    def type(self, name: str) -> "Query[_S]":
        """Only things of a type."""
        self._type = name
        return self

    def prefix(self, prefix: str) -> "Query[_S]":
        """Only things whose id begins so."""
        self._prefix = prefix
        return self

    def execute(self) -> List[_S]:
        """The latest version of each, at most LIMIT, by id."""
        answer = _host.ask("host/artifact.list", kind=self._cls.kind, type=self._type, prefix=self._prefix, limit=LIMIT)
        return [self._cls.of(item) for item in answer.get("items") or []]


def spill(content: bytes, name: str) -> str:
    """Writes bytes into a file for AgentEnv to read, in a folder of its own; drop() removes both."""
    folder = tempfile.mkdtemp(prefix="object-")
    path = os.path.join(folder, os.path.basename(name) or "content")
    with open(path, "wb") as f:
        f.write(content)
    return path


def drop(path: str) -> None:
    """Removes what spill made."""
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def read_and_drop(path: str) -> bytes:
    """The bytes of a file that AgentEnv left for us; it is removed."""
    with open(path, "rb") as f:
        content = f.read()
    try:
        os.unlink(path)
    except OSError:
        pass
    return content


def object_url(content: bytes) -> str:
    """The address of an object that holds these bytes."""
    return "object:sha256:" + hashlib.sha256(content).hexdigest()


def object_url_of(path: str) -> str:
    """The address of an object that holds a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for chunk in iter(lambda: f.read(1 << 20), b""):
            digest.update(chunk)
    return "object:sha256:" + digest.hexdigest()


def reference(value: Any, name: str) -> Dict[str, Any]:
    """How a body names another stored thing: "<name>_id" and "<name>_version"."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {f"{name}_id": value}
    return {f"{name}_id": value.id, f"{name}_version": value.version}
