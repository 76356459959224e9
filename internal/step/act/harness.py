"""Calls one function of a script and writes its JSON result to a file.

usage: python3 harness.py FOLDER SCRIPT FUNCTION

FOLDER holds input.json, the folder src with the script and the files beside it, and gets result.json or failure.json.
Standard output and error belong to the script alone. Needs Python 3.9 and the standard library.
"""
import sys

if sys.version_info < (3, 9):
    sys.exit("python3 is %d.%d; scripts need 3.9 or newer" % sys.version_info[:2])

import importlib.util
import json
import os
import traceback
import types


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
    os._exit(1)  # a script's threads must not keep a failed run alive


def load(src, script):
    """The script as a module. Its own folder and src are searched for what it imports; one in a folder may import relatively."""
    path = os.path.join(src, *script.split("/"))
    folder = os.path.dirname(path)
    sys.path[0:1] = [folder] if folder == src else [folder, src]  # in place of the harness's own folder
    name = "agentenv_script"
    if folder != src:
        package = types.ModuleType("agentenv_package")
        package.__path__ = [folder]
        sys.modules[package.__name__] = package
        name = package.__name__ + "." + os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main(folder, script, function):
    with open(os.path.join(folder, "input.json"), encoding="utf-8") as f:
        given = json.load(f)
    try:
        module = load(os.path.join(folder, "src"), script)
        call = getattr(module, function, None)
        if not callable(call):
            raise AttributeError("%s has no function %s" % (script, function))
        result = call(given)
    except SystemExit as e:
        if e.code is None or e.code == 0:
            fail(folder, "SystemExit", "the script ended before %s returned" % function)
        fail(folder, "SystemExit", "the script ended with %s" % (e.code,))
    except BaseException as e:
        traceback.print_exc()
        fail(folder, type(e).__name__, str(e))
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        fail(folder, "ResultError", "what %s returned is not JSON: %s" % (function, e))
    write(folder, "result.json", text)


main(*sys.argv[1:4])
