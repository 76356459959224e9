"""What a plugin raised, said in one line: the text, and the plugin's own file and line. No stack trace, no path of this machine."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType
from typing import Optional

OWN = ("agentenv_host", "agent_env", "agentenv_protocol")
"""Packages whose frames aren't the plugin's."""

MAX_MESSAGE = 4000
"""Characters of a message."""


def one_line(error: BaseException) -> str:
    """What ``error`` says, in one line; for an error that says nothing, that it doesn't."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r})" if error.code is not None else "called sys.exit()"
    if isinstance(error, KeyError) and len(error.args) == 1:
        return f"has no {safe_repr(error.args[0])}"
    try:
        text = str(error)
    except BaseException:  # noqa: B036 - also an error's own __str__ may raise
        text = ""
    lines = " ".join(text.split())
    if not lines:
        return f"raised {type(error).__name__} without a message"
    return lines if len(lines) <= MAX_MESSAGE else lines[:MAX_MESSAGE] + "…"


def explain(error: BaseException) -> str:
    """one_line with the place in the plugin's code at its end: "the lobby is closed (acme/steps.py:41)"."""
    place = place_of(error)
    return f"{one_line(error)} ({place})" if place else one_line(error)


def safe_repr(value: object) -> str:
    """repr in one line; for a value whose own repr raises, its class."""
    try:
        text = " ".join(repr(value).split())
    except BaseException:  # noqa: B036
        return f"<{type(value).__name__}>"
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "…"


def place_of(error: BaseException) -> str:
    """Where in a plugin's code ``error`` was raised, as "package/file.py:line".

    That is the innermost frame of code that is neither ours nor Python's own; "" when there is none. A syntax error names the file that has it.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{relative(error.filename)}:{error.lineno}"
    best = ""
    trace: Optional[TracebackType] = error.__traceback__
    for frame, line in traceback.walk_tb(trace):
        path = frame.f_code.co_filename
        if _is_plugin(path):
            best = f"{relative(path)}:{line}"
    return best


def _is_plugin(path: str) -> bool:
    if path.startswith("<"):
        return False
    short = relative(path)
    if os.path.isabs(short) or short.split("/", 1)[0] in OWN:
        return False
    return not _stdlib(path)


def _stdlib(path: str) -> bool:
    home = os.path.dirname(os.path.abspath(os.__file__))
    real = os.path.abspath(path)
    return real.startswith(home + os.sep) and "site-packages" not in real and "dist-packages" not in real


def relative(path: str) -> str:
    """``path`` below the entry of sys.path that it was imported from; itself when there is none."""
    full = os.path.abspath(path)
    best = ""
    for entry in sys.path:
        root = os.path.abspath(entry) if entry else os.getcwd()
        if full.startswith(root + os.sep) and len(root) > len(best):
            best = root
    return full[len(best) + 1:].replace(os.sep, "/") if best else full


def is_infra(error: BaseException) -> bool:
    """Whether ``error`` says that something couldn't be reached, which says nothing of the task or the agent.

    What was reached and didn't answer in time isn't among that: an environment that hangs may have been made to.
    """
    if isinstance(error, TimeoutError) or _of(error, "httpx", "ReadTimeout"):
        return False
    if isinstance(error, ConnectionError):
        return True
    if _of(error, "urllib", "URLError"):
        return not _of(error, "urllib", "HTTPError")
    return _of(error, "httpx", "TransportError") or _of(error, "requests", "ConnectionError")


def _of(error: BaseException, package: str, name: str) -> bool:
    """Whether ``error`` is of a class of a package, which isn't imported to find out."""
    return any(c.__name__ == name and c.__module__.split(".")[0] == package for c in type(error).__mro__)
