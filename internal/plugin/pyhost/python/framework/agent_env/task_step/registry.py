"""The step types that this process has loaded."""

from __future__ import annotations

from typing import Dict, Type

from .task_step import TaskStep

_loaded: Dict[str, Type[TaskStep]] = {}


def get_task_step_registry() -> Dict[str, Type[TaskStep]]:
    """Classes by type."""
    return _loaded
