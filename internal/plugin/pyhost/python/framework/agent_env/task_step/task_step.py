"""The class that step types derive from."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, List, Optional, Sequence, Union

from ..entity_refs import EntityRef
from .context import TaskStepContext


class TaskStepDependency:
    """A step that must have ended before another starts."""

    def __init__(self, task_step_id: str):
        self.task_step_id = task_step_id

    def to_dict(self) -> Dict[str, Any]:
        """Its document."""
        return {"task_step_id": self.task_step_id}

    @classmethod
    def of(cls, value: Union[str, Dict[str, Any], "TaskStepDependency"]) -> "TaskStepDependency":
        """One from a step's id, or from its document."""
        if isinstance(value, TaskStepDependency):
            return value
        return cls(value if isinstance(value, str) else value["task_step_id"])

    from_dict = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskStepDependency) and self.task_step_id == other.task_step_id

    def __hash__(self) -> int:
        return hash(self.task_step_id)


class RetryConfig:
    """From which step to run again when this one fails, and how often."""

    def __init__(self, retry_from_step_id: Optional[str] = None, max_retries: int = 1):
        if max_retries < 0:
            raise ValueError("max_retries must not be negative")
        self.retry_from_step_id, self.max_retries = retry_from_step_id, max_retries

    def to_dict(self) -> Dict[str, Any]:
        """Its document."""
        return {"retry_from_step_id": self.retry_from_step_id, "max_retries": self.max_retries}

    @classmethod
    def from_dict(cls, document: Dict[str, Any]) -> "RetryConfig":
        """One from its document; ``go_to_step_id`` is another name of ``retry_from_step_id``."""
        return cls(document.get("retry_from_step_id") or document.get("go_to_step_id"), document.get("max_retries", 1))


class TaskStep:
    """A step of a task. A type derives from it, sets ``type``, and says what its steps do in ``execute``, and how they are read in ``from_dict``."""

    type: ClassVar[str] = ""
    entity_refs: ClassVar[Optional[Sequence[EntityRef]]] = None
    """The fields that name stored things, of this very class; None leaves it open."""
    field_scopes: ClassVar[Optional[Dict[str, Any]]] = None

    def __init__(
        self,
        id: str,
        version: Optional[int] = None,
        depends_on: Optional[Sequence[Any]] = None,
        fail_task_on_error: bool = True,
        retry_config: Any = None,
    ):
        self.id, self.version, self.fail_task_on_error = id, version, fail_task_on_error
        self.depends_on: Optional[List[TaskStepDependency]] = None if depends_on is None else [TaskStepDependency.of(d) for d in depends_on]
        self.retry_config: Optional[RetryConfig] = RetryConfig.from_dict(retry_config) if isinstance(retry_config, dict) else retry_config

    async def execute(self, context: TaskStepContext) -> Optional[TaskStepContext]:
        """Does what the step says. The context may be changed in place; it, another, or None for it is answered."""
        raise NotImplementedError(f"{type(self).__name__} has no execute")

    def preflight(self) -> List[Any]:
        """Why the step can't run here: texts, asked before anything runs."""
        return []

    def config_problems(self) -> List[Any]:
        """What is wrong with the step's document: texts. Nothing may be read from stores."""
        return []

    def step_param_overrides(self, context: TaskStepContext) -> Dict[str, Any]:
        """What people chose for this step of this run, by name of the field."""
        overrides = (context.metadata.get("user_overrides") or {}).get("step_params") or {}
        return overrides.get(self.id) or {}

    def to_dict(self) -> Dict[str, Any]:
        """The step's document."""
        return {
            "id": self.id,
            "version": self.version,
            "type": type(self).type,
            "depends_on": None if self.depends_on is None else [d.to_dict() for d in self.depends_on],
            "fail_task_on_error": self.fail_task_on_error,
            "retry_config": None if self.retry_config is None else self.retry_config.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "TaskStep":
        """A step from its document."""
        return cls(**cls._base_from_dict(data))

    @classmethod
    def _base_from_dict(cls, data: Dict[str, Any]) -> Dict[str, Any]:
        """What every step's constructor takes, from a document. A constructor that has no retry_config isn't given one."""
        base: Dict[str, Any] = {"id": data["id"], "version": data.get("version"), "depends_on": data.get("depends_on")}
        if "fail_task_on_error" in data:
            base["fail_task_on_error"] = data["fail_task_on_error"]
        if data.get("retry_config") is not None and _takes(cls, "retry_config"):
            base["retry_config"] = data["retry_config"]
        return base


def _takes(cls: type, name: str) -> bool:
    code = getattr(cls.__init__, "__code__", None)
    if code is None:
        return True
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return name in named or bool(code.co_flags & 0x08)
