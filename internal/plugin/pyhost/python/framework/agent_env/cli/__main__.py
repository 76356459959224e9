"""Becomes the program agent-env: the one that started this process, else the one on the PATH."""

from __future__ import annotations

import os
import shutil
import sys


def main() -> None:
    """Replaces this process. Ends it with 127 when there is no agent-env."""
    program = os.environ.get("AGENTENV_BINARY") or shutil.which("agent-env")
    if not program:
        sys.stderr.write("Error: there is no agent-env on the PATH; install it, or name it in AGENTENV_BINARY\n")
        sys.exit(127)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as e:
        sys.stderr.write(f"Error: {program} can't be started: {e.strerror}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
