"""Look at what the agent has left in the apps, asking each for its data by its name."""
import base64
import json
import time
import urllib.request

PATIENCE = 20  # seconds: a window needs a moment for what was typed last
MARK = "urn:agentenv:data-objects/v1"
DONE = {"notes": {"Notes/shopping.txt": "milk\nbread\ncandles\n"}, "clock": {"alarms": ["06:45", "07:30", "22:00"]}}


def ask(url, message=None):
    body = None if message is None else json.dumps(message).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=60) as answer:
        return json.load(answer)


def data(url):
    """What an environment holds: the texts of files by their paths, or data as they are."""
    files = {}
    for part in ask(url, {"jsonrpc": "2.0", "id": 1, "method": "data/get", "params": {}})["result"]["parts"]:
        if part["kind"] == "data":
            return part["data"]
        files[part["metadata"][MARK]["path"]] = base64.b64decode(part["file"]["bytes"]).decode()
    return files


async def verify(mcp_url):
    gateway = mcp_url.removesuffix("/mcp")
    card = ask(gateway + "/.well-known/agent-env.json")["children_environments"][0]
    rows, end = [], time.monotonic() + PATIENCE
    for app in card["children_environments"]:
        want, got = DONE[app["name"]], {}
        while not got.items() >= want.items() and time.monotonic() < end:
            got = data(gateway + app["url"])
            time.sleep(0.05)
        rows.append({"id": app["name"], "result": got.items() >= want.items(), "description": f"it holds {got}"})
    return rows
