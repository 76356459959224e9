"""What plugins log goes to the log of the step that they run for."""

from __future__ import annotations

import logging

from .calls import Calls

MAX_LINE = 64 << 10
"""Bytes of one line, as the protocol has it."""


class Handler(logging.Handler):
    """Sends records as ``log`` notifications. A record that can't be formatted is sent as it was written, with what is wrong with it."""

    def __init__(self, calls: Calls):
        super().__init__()
        self._calls = calls

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except BaseException as e:  # noqa: B036 - a wrong format of a plugin must not end its step
            text = f"{record.msg!s} (its arguments don't fit: {e})"
        if record.exc_info and record.exc_info[1] is not None:
            from .faults import explain

            text = f"{text}: {explain(record.exc_info[1])}"
        self._calls.log(_level(record.levelno), text[:MAX_LINE])


def install(calls: Calls) -> None:
    """Makes the root logger send records of level info and above, and nothing else."""
    root = logging.getLogger()
    root.handlers[:] = [Handler(calls)]
    root.setLevel(logging.INFO)
    for noisy in ("httpx", "httpcore", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
