"""Loads entries one after the other and tells of each: for whoever wants to know whether they load, and survives those that end the process.

Reads {"entries": […], "callbacks": bool} from stdin; with callbacks, those of options are called as for a command line that has none of them. Writes a line of JSON before each load, {"begin": index}, and one after it, {"index": …, "loaded": {…}}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from .entries import Entries
from .streams import take_stdio


def main() -> None:
    """Checks what stdin says and ends the process."""
    incoming, outgoing = take_stdio()
    with os.fdopen(incoming, "rb") as f:
        request = json.loads(f.read())
    entries = request["entries"]
    os.register_at_fork(after_in_child=lambda: os.close(outgoing))  # a fork that lives on must not keep the reader waiting
    loader = Entries()
    for index, entry in enumerate(entries):
        _say(outgoing, {"begin": index})
        _say(outgoing, {"index": index, "loaded": loader.describe(entry, bool(request.get("callbacks")))})
    sys.stderr.flush()
    os._exit(0)  # threads that a plugin left don't hold the process


def _say(outgoing: int, message: Dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    while data:
        data = data[os.write(outgoing, data):]
