"""The runs of the store, which a command may read. A step has its own run's context, and no other's."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Iterable, Iterator, List, Optional

from . import _host
from ._record import Record

PAGE = 100
"""How many runs are read at a time."""


class Run(Record):
    """One run: ``id``, ``task_id``, ``status``, ``scores`` by verifier, times as texts, and its ``context`` document when that was asked for."""

    _defaults: ClassVar[Dict[str, Any]] = {"task_id": "", "task_version": 0, "label": "", "status": "", "error": None, "started": None, "ended": None, "scores": {}, "context": None}

    @property
    def instance_id(self) -> str:
        """Its id, as steps know it."""
        return str(self.id)


def query(task: Optional[str] = None, status: Optional[Iterable[str]] = None, context: bool = False) -> Iterator[Run]:
    """All runs, newest first, of a task and with one of some statuses where those are given."""
    after: Optional[str] = None
    wanted = None if status is None else list(status)
    while True:
        page = _ask(task=task, status=wanted, context=context, after=after, limit=PAGE)
        for document in page.get("runs") or []:
            yield Run(**document)
        after = page.get("next")
        if not after:
            return


def get(id: str, context: bool = True) -> Run:
    """The run of an id, or of what only one id begins or ends with. Raises LookupError."""
    try:
        found: List[Dict[str, Any]] = _ask(run=id, context=context)["runs"]
    except PermissionError as e:
        raise LookupError(str(e)) from None
    return Run(**found[0])


def _ask(**params: Any) -> Dict[str, Any]:
    answer: Dict[str, Any] = _host.ask("host/runs.query", **params)
    return answer
