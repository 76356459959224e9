"""A document that knows which of its members were read, so that a misspelt field is found though a class reads what it likes."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set

BASE = frozenset({"id", "type", "version", "depends_on", "fail_task_on_error", "retry_config", "timeout_seconds", "always", "name", "description", "verifier_id"})
"""Fields that every step may have."""


class Tracked(Dict[str, Any]):
    """A dict that notes which members are asked for. Going through all of them counts as reading all."""

    def __init__(self, document: Dict[str, Any]):
        super().__init__(document)
        self.asked: Set[str] = set()

    def unread(self) -> List[str]:
        """Members that nobody asked for, sorted."""
        return sorted(set(super().keys()) - self.asked - BASE)

    def _all(self) -> None:
        self.asked.update(super().keys())

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:  # type: ignore[override]
        self.asked.add(key)
        return super().pop(key, *default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._all()
        return super().__iter__()

    def keys(self) -> Any:
        self._all()
        return super().keys()

    def items(self) -> Any:
        self._all()
        return super().items()

    def values(self) -> Any:
        self._all()
        return super().values()

    def copy(self) -> Dict[str, Any]:
        self._all()
        return dict(super().items())
