"""Which fields of a document name stored things."""

from __future__ import annotations

import enum
from typing import Any, Dict, Optional


class EntityKind(str, enum.Enum):
    """What a field may name."""

    ENV = "env"
    ARTIFACT = "artifact"
    AGENT = "agent"
    TASK = "task"


class EntityRef:
    """A field that names a stored thing. ``path`` leads to it: "env_id", "artifacts[].id"."""

    def __init__(self, kind: Any, path: str, *, artifact_type: Optional[str] = None, version: Optional[str] = None, out: bool = False, **more: Any):
        self.kind, self.path = EntityKind(kind), path
        self.artifact_type, self.version, self.out = artifact_type, version, out
        self.more = more

    @classmethod
    def env(cls, path: str, **options: Any) -> "EntityRef":
        """A field that names an environment."""
        return cls(EntityKind.ENV, path, **options)

    @classmethod
    def artifact(cls, path: str, **options: Any) -> "EntityRef":
        """A field that names an artifact, of ``artifact_type`` where that is given."""
        return cls(EntityKind.ARTIFACT, path, **options)

    @classmethod
    def agent(cls, path: str, **options: Any) -> "EntityRef":
        """A field that names an agent."""
        return cls(EntityKind.AGENT, path, **options)

    a2a_agent = agent

    @classmethod
    def task(cls, path: str, **options: Any) -> "EntityRef":
        """A field that names a task."""
        return cls(EntityKind.TASK, path, **options)

    def document(self) -> Dict[str, Any]:
        """As the plugin protocol has it."""
        out: Dict[str, Any] = {"path": self.path, "kind": self.kind.value}
        if self.artifact_type:
            out["type"] = self.artifact_type
        if self.version:
            out["version"] = self.version
        if self.out:
            out["out"] = True
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntityRef) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash((self.kind, self.path))

    def __repr__(self) -> str:
        return f"EntityRef({self.kind.value!r}, {self.path!r})"
