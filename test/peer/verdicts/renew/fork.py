# Loads the installed agent-env once and runs it in a fork for each job: a line of JSON in, the exit status out.
import json
import os
import sys
import traceback
from importlib.metadata import entry_points

program = next(e for e in entry_points(group="console_scripts") if e.name == "agent-env").load()
# What a run loads on its way, so that no fork has to.
import agent_env.bundle.run  # noqa: E402,F401


def work(job):
    os.dup2(os.open(job["stderr"], os.O_WRONLY | os.O_CREAT, 0o600), 2)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["dir"])
    sys.argv = ["agent-env", *job["args"]]
    try:
        return program() or 0
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = work(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
