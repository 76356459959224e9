"""Takes the descriptors that messages go over, before any plugin is imported, so that nothing a plugin prints ends up among them."""

from __future__ import annotations

import os
import socket
import sys


def take_stdio() -> tuple[int, int]:
    """Keeps copies of stdin and stdout for messages and answers them (in, out).

    From then on stdin is empty, and what is printed goes to stderr: also from programs that a plugin starts.
    """
    incoming, outgoing = _keep(0), _keep(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    _forgive(sys.stdout)
    _forgive(sys.stderr)
    return incoming, outgoing


def take_socket(descriptor: int) -> tuple[int, int]:
    """Answers (in, out) for messages over a stream socket; stdin, stdout and stderr stay with the person."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(True)
    kept = sock.detach()
    os.set_inheritable(kept, False)
    _forgive(sys.stdout)
    _forgive(sys.stderr)
    return kept, kept


def _keep(descriptor: int) -> int:
    """A copy out of the way of the low numbers that programs take for granted; programs that are started don't inherit it."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200)


def _forgive(stream: object) -> None:
    """Text that has no encoding is printed escaped and doesn't raise; lines appear when they end."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace", line_buffering=True)
