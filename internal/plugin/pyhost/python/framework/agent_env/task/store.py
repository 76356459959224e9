"""Runs under the names by which plugins ask for them; see agent_env.runs."""

from __future__ import annotations

import itertools
from typing import List, Optional

from .. import runs
from ..runs import Run as TaskInstance

__all__ = ["TaskInstance", "TaskInstanceStore", "find_task_instance", "get_task_instance_store", "task_instances"]


class TaskInstanceStore:
    """The runs of the store. They are read, and never written."""

    def get(self, instance_id: str) -> TaskInstance:
        """A run with its context. Raises LookupError."""
        return runs.get(instance_id)

    def find(self, task_id: str, *, task_version: Optional[int] = None, limit: Optional[int] = None, offset: int = 0) -> List[TaskInstance]:
        """A task's runs with their contexts, newest first."""
        found = (r for r in runs.query(task=task_id, context=True) if task_version in (None, r.task_version))
        return list(itertools.islice(found, offset, None if limit is None else offset + limit))


def get_task_instance_store() -> TaskInstanceStore:
    """The store of runs."""
    return TaskInstanceStore()


def task_instances(task_id: str, *, task_version: Optional[int] = None, limit: Optional[int] = None, offset: int = 0) -> List[TaskInstance]:
    """A task's runs with their contexts, newest first."""
    return TaskInstanceStore().find(task_id, task_version=task_version, limit=limit, offset=offset)


def find_task_instance(instance_id: str) -> Optional[TaskInstance]:
    """A run with its context; None when there is none of that id."""
    try:
        return runs.get(instance_id)
    except LookupError:
        return None
