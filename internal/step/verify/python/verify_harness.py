"""Calls verify() of a verifier and writes the rows that it returns to a file.

usage: python3 verify_harness.py FOLDER SCRIPT

FOLDER holds input.json, the folder src with the verifier, and the folder lib with a small client of MCP for machines that have none; it gets
result.json or failure.json. Standard output and error belong to the verifier alone. Needs Python 3.9 and the standard library.
"""
import sys

if sys.version_info < (3, 9):
    sys.exit("python3 is %d.%d; verifiers need 3.9 or newer" % sys.version_info[:2])

import asyncio
import importlib.util
import inspect
import json
import os
import traceback


class Record:
    """What the run holds, by attribute: fields that are absent are None."""

    def __init__(self, fields):
        self.__dict__.update(fields)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Run:
    """The run that is verified: its conversation, turn by turn, and what triggers did."""

    def __init__(self, given):
        self.unavailable = dict(given.get("unavailable") or {})
        self._firings = tuple(Record(f) for f in given.get("firings") or ())
        turns = []
        for number, t in enumerate(given.get("turns") or (), 1):
            message = Record(dict(t["message"], turn=number, role="user"))
            reply = Record(dict(t["reply"], turn=number, role="agent")) if t.get("reply") else None
            turns.append(Record({"number": number, "message": message, "reply": reply}))
        self._turns = tuple(turns)

    @property
    def turns(self):
        return self._turns

    def turn(self, number):
        if not 1 <= number <= len(self._turns):
            raise LookupError("the run has no turn %d; it has %d" % (number, len(self._turns)))
        return self._turns[number - 1]

    @property
    def messages(self):
        return tuple(m for t in self._turns for m in (t.message, t.reply) if m is not None)

    def firings(self, trigger_id=None, *, env=None):
        return tuple(f for f in self._firings if trigger_id in (None, f.trigger_id) and (env is None or f.source == "env:" + env))

    def firing(self, trigger_id, *, env=None):
        return next(iter(self.firings(trigger_id, env=env)), None)


def write(folder, name, text):
    """A file is there whole or not at all."""
    part = os.path.join(folder, name + ".part")
    with open(part, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(part, os.path.join(folder, name))


def fail(folder, kind, message):
    write(folder, "failure.json", json.dumps({"type": kind, "message": message}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # a verifier's threads must not keep a failed one alive


def load(folder, script):
    sys.path[0:1] = [os.path.join(folder, "src")]  # in place of the harness's own folder
    sys.path.append(os.path.join(folder, "lib"))  # last: what is installed wins
    spec = importlib.util.spec_from_file_location("agentenv_verifier", os.path.join(folder, "src", script))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def call(module, given):
    verify = getattr(module, "verify", None)
    if not callable(verify):
        raise AttributeError("the verifier has no function verify")
    more = {"run": Run(given.get("run") or {})} if "run" in inspect.signature(verify).parameters else {}
    rows = verify(given["mcp_url"], **more)
    if inspect.isawaitable(rows):
        async def wait():
            return await rows

        rows = asyncio.run(wait())
    return rows


def main(folder, script):
    with open(os.path.join(folder, "input.json"), encoding="utf-8") as f:
        given = json.load(f)
    try:
        rows = call(load(folder, script), given)
    except SystemExit as e:
        fail(folder, "SystemExit", "the verifier ended with %s before verify returned" % (e.code,))
    except BaseException as e:
        traceback.print_exc()
        while getattr(e, "exceptions", None):  # of a group of tasks: the first says why
            e = e.exceptions[0]
        fail(folder, type(e).__name__, str(e))
    try:
        text = json.dumps(list(rows) if isinstance(rows, tuple) else rows, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        fail(folder, "ResultError", "what verify returned is not JSON: %s" % e)
    write(folder, "result.json", text)


main(*sys.argv[1:3])
