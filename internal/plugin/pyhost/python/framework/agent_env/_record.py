"""Documents of a run's context as objects: their members are attributes, and what a plugin sets becomes part of the document."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Set, Type, TypeVar

_R = TypeVar("_R", bound="Record")


class Record:
    """An object that is a document. Members that a class doesn't name are kept; names that begin with _ are no part of the document."""

    _defaults: ClassVar[Dict[str, Any]] = {}

    def __init__(self, **members: Any):
        self._made: Set[str] = set()
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        # Only reached for what isn't set: a member that the class knows has its default from then on.
        if not name.startswith("_"):
            for cls in type(self).__mro__:
                defaults = cls.__dict__.get("_defaults", {})
                if name in defaults:
                    value = defaults[name]
                    if not isinstance(value, (dict, list)):
                        return value
                    self._made.add(name)
                    return self.__dict__.setdefault(name, type(value)())
        raise AttributeError(f"{type(self).__name__} has no {name}")

    @classmethod
    def from_dict(cls: Type[_R], document: Dict[str, Any]) -> _R:
        """One from its document."""
        return cls(**document)

    def to_dict(self) -> Dict[str, Any]:
        """Its document; lists and dicts in it are the object's own. What reading made and nobody filled isn't in it."""
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_") and (v or k not in self._made)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.to_dict().items())})"
