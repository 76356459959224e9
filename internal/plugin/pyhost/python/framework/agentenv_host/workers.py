"""Threads that answer requests: at most a number of them, made when needed and used again; a bounded queue before them."""

from __future__ import annotations

import collections
import threading
from typing import Callable, Deque, FrozenSet, Optional

THREADS = 64
"""How many requests are worked on at once."""

WAITING = 1024
"""How many more may wait."""

Job = Callable[[], None]


class Busy(Exception):
    """The queue is full."""


class Workers:
    """Runs jobs on threads. Jobs of methods in ``on_main`` wait for the thread that calls serve_main(): what needs signals and a terminal runs there."""

    def __init__(self, on_main: FrozenSet[str] = frozenset()):
        self._on_main = on_main
        self._changed = threading.Condition()
        self._jobs: Deque[Job] = collections.deque()
        self._main: Deque[Job] = collections.deque()
        self._idle = self._threads = 0
        self._closed = False

    def submit(self, method: str, job: Job) -> None:
        """Queues a job. Raises Busy."""
        with self._changed:
            queue = self._main if method in self._on_main else self._jobs
            if len(queue) >= WAITING:
                raise Busy(f"{WAITING} requests are waiting")
            queue.append(job)
            if queue is self._jobs and self._idle < len(queue) and self._threads < THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="agentenv-call", daemon=True).start()
            self._changed.notify_all() if self._on_main else self._changed.notify()

    def urgent(self, job: Job) -> None:
        """Runs a short job on a thread of its own, past the queue."""
        threading.Thread(target=job, name="agentenv-urgent", daemon=True).start()

    def serve_main(self) -> None:
        """Runs the main thread's jobs until close()."""
        while True:
            job = self._next(self._main)
            if job is None:
                return
            job()

    def close(self) -> None:
        """Lets serve_main return. Jobs that run go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self, queue: Deque[Job]) -> Optional[Job]:
        with self._changed:
            self._idle += queue is self._jobs
            try:
                while not queue:
                    if self._closed:
                        return None
                    self._changed.wait()
                return queue.popleft()
            finally:
                self._idle -= queue is self._jobs

    def _work(self) -> None:
        while True:
            job = self._next(self._jobs)
            if job is None:
                return
            job()
