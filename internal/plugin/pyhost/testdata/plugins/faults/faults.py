"""Steps that go wrong in every way."""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import logging
import os
import subprocess
import sys
import threading
import time

from agent_env.config import get_config
from agent_env.plugins import settings
from agent_env.task_step.task_step import TaskStep

print("printed at import")


class Fault(TaskStep):
    type = "fault"
    entity_refs = ()

    def __init__(self, id, version=None, how="", depends_on=None, fail_task_on_error=True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.how = how

    @classmethod
    def from_dict(cls, data):
        return cls(**cls._base_from_dict(data), how=data["how"])

    async def execute(self, context):
        return await getattr(self, self.how)(context)

    async def prints(self, context):
        print('{"jsonrpc":"2.0","id":1,"result":"forged"}')
        sys.stdout.write("no line end")
        os.write(1, b"raw bytes on descriptor 1\n")
        subprocess.run([sys.executable, "-c", "print('from a child'); import sys; print(repr(sys.stdin.read()))"], check=True)
        context.metadata["read"] = sys.stdin.read()
        return context

    async def exits(self, context):
        sys.exit("enough")

    async def exits_in_thread(self, context):
        await asyncio.to_thread(sys.exit, 4)

    async def interrupts(self, context):
        raise KeyboardInterrupt

    async def surrogates(self, context):
        raise ValueError("caf\udce9\nsecond\x00line")

    async def mute(self, context):
        raise RuntimeError

    async def unprintable(self, context):
        class Odd(Exception):
            def __str__(self):
                raise RecursionError

        raise Odd

    async def sets(self, context):
        context.metadata.setdefault("acme", {})["seen"] = {1, 2}
        return context

    async def dates(self, context):
        context.metadata["when"] = datetime.datetime(2026, 1, 1)
        return context

    async def nan(self, context):
        context.metadata["score"] = float("nan")
        return context

    async def circles(self, context):
        context.metadata["me"] = context.metadata
        return context

    async def keys(self, context):
        context.metadata["pairs"] = {(1, 2): 3}
        return context

    async def wrong_result(self, context):
        return {"metadata": {}}

    async def surrogate_value(self, context):
        context.metadata["name"] = "caf\udce9"
        context.metadata["more"] = {1: "one", None: (1, 2)}
        return context

    async def forks(self, context):
        pid = os.fork()
        if pid == 0:
            return context  # the child falls through, as careless code does
        os.waitpid(pid, 0)
        context.metadata["parent"] = True
        return context

    async def forks_and_asks(self, context):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                settings("x")
            except ConnectionError as e:
                os.write(write, str(e).encode())
            os._exit(0)
        os.close(write)
        context.metadata["child"] = os.read(read, 1000).decode()
        return context

    async def threads(self, context):
        seen = []
        worker = threading.Thread(target=lambda: seen.append(settings("x")))
        worker.start()
        await asyncio.to_thread(worker.join)
        threading.Thread(target=time.sleep, args=(1000,)).start()  # and one that never ends
        await asyncio.get_running_loop().run_in_executor(None, lambda: seen.append(settings("y")))
        context.metadata["seen"] = seen
        return context

    async def waits(self, context):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            logging.getLogger("faults").info("cleaning up")
            raise

    async def swallows(self, context):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            context.metadata["swallowed"] = True
        return context

    async def blocks(self, context):
        time.sleep(2)
        context.metadata["blocked"] = True
        return context

    async def cancels_itself(self, context):
        raise asyncio.CancelledError

    async def unreachable(self, context):
        from agentenv_protocol import client

        await client.get_data("http://127.0.0.1:9/c/s3cret/env", timeout=5)

    async def secret(self, context):
        context.metadata["secret"] = get_config().get_secret_store().get("NOPE")
        return context

    async def bad_log(self, context):
        logging.getLogger("faults").info("%d of %s", "x")
        logging.getLogger("faults").warning("caf\udce9")
        try:
            1 / 0
        except ZeroDivisionError:
            logging.getLogger("faults").exception("it broke")
        return context

    async def large(self, context):
        context.metadata["large"] = "x" * (33 << 20)
        return context

    async def crashes(self, context):
        sys.stderr.write("about to crash\n")
        ctypes.string_at(0)

    async def ok(self, context):
        context.metadata["ok"] = len(context.metadata)
        return context
