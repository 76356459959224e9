"""Wait until every app of the computer has its window on the screen, so that an agent can begin.

An app leaves the id of its process in a file once its window is there, which is asked for in the desktop's session.
"""
import json
import time
import urllib.request
import uuid

PATIENCE = 60  # seconds


def ask(url, message=None):
    body = None if message is None else json.dumps(message).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=60) as answer:
        return json.load(answer)


def run(computer, command):
    """What a command in the desktop's session prints."""
    call = {"argv": ["sh", "-c", command], "request_id": str(uuid.uuid4())}
    return ask(f"{computer}/agentenv/ext/computer-exec/run", call)["stdout"].strip()


def shown(computer, app):
    """Whether the process that runs has its window on the screen."""
    status = ask(f"{computer}/svc/{app}/agentenv/ext/computer-app/status")
    return status["running"] and run(computer, f"cat .cache/{app}.window 2>/dev/null || true") == str(status["pid"])


async def verify(mcp_url):
    gateway = mcp_url.removesuffix("/mcp")
    card = ask(gateway + "/.well-known/agent-env.json")["children_environments"][0]
    computer = f"{gateway}/svc/mcp-{card['name']}"
    rows, end = [], time.monotonic() + PATIENCE
    for app in (child["name"] for child in card["children_environments"]):
        while not (up := shown(computer, app)) and time.monotonic() < end:
            time.sleep(0.05)
        said = "" if up else run(computer, f"tail -c 1000 .agentenv/apps/{app}.log")
        rows.append({"id": f"{app}-is-on-the-screen", "result": up, "description": said})
    return rows
