"""Commands of plugins, and options that they add to agent-env itself: click objects, run on the main thread with the person's terminal."""

from __future__ import annotations

import sys
from typing import Any, Dict

from .calls import Calls
from .entries import OPTIONS, Entries, alone
from .faults import explain
from .rpc import BAD_PARAMS, Request, RPCError
from .steps import loaded


THROUGH = -1
"""The exit code of an option whose callback ended nothing."""


class Commands:
    """Answers ``command/run``."""

    def __init__(self, entries: Entries, calls: Calls):
        self._entries, self._calls = entries, calls

    def run(self, request: Request) -> Dict[str, Any]:
        """Runs a command and answers its exit code. What it printed is on the terminal by then.

        For an option, ``args`` are what people wrote of it, nothing included: its callback is called. The exit code is THROUGH when the
        callback lets the command go on.
        """
        args = request.params.get("args") or []
        if not isinstance(args, list) or not all(isinstance(a, str) for a in args):
            raise RPCError(BAD_PARAMS, "args is no list of texts")
        command = loaded(self._entries, request)
        name = str(request.params["entry"].get("name", ""))
        passed: "list[bool]" = []
        if request.params["entry"].get("group") == OPTIONS:
            command = alone(command, lambda: passed.append(True))
        with self._calls.enter(str(request.params.get("call", ""))):
            code = _main(command, name, list(args))
        if passed and code == 0:
            code = THROUGH
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        return {"exit_code": code}


def _main(command: Any, name: str, args: "list[str]") -> int:
    program = f"agent-env {name}"
    sys.argv = [program, *args]
    try:
        command.main(args=args, prog_name=program, standalone_mode=True)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return int(e.code or 0)
        sys.stderr.write(f"{e.code}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        return 1
    except BaseException as e:  # noqa: B036 - a person sees one line, not a stack trace
        sys.stderr.write(f"Error: {name}: {explain(e)}\n")
        return 1
    return 0
