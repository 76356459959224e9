"""``python -m agentenv_host``: the Python host. AgentEnv starts it; AGENTENV_PLUGIN says where messages go."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Serves the plugin protocol, or with ``--check`` loads the entries that stdin names."""
    if sys.argv[1:] == ["--check"]:
        from . import check

        check.main()
        return
    how = os.environ.pop("AGENTENV_PLUGIN", "")
    from .streams import take_socket, take_stdio

    if how == "stdio":
        incoming, outgoing = take_stdio()
    elif how.startswith("fd:") and how[3:].isdigit():
        incoming, outgoing = take_socket(int(how[3:]))
    else:
        sys.stderr.write("this program serves Python plugins to agent-env, which starts it; it does nothing by itself\n")
        sys.exit(2)
    sys.argv = ["agent-env"]
    from .server import serve

    serve(incoming, outgoing, terminal=how != "stdio")


if __name__ == "__main__":
    main()
