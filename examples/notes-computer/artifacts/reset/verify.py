"""Reset every app from inside: a command in the desktop's session asks the driver's route to the app."""
import json
import urllib.request

INSIDE = """
import json, sys, urllib.request
call = {"jsonrpc": "2.0", "id": 1, "method": "data/reset", "params": {}}
at = "http://127.0.0.1:18765/svc/" + sys.argv[1] + "/agentenv"
request = urllib.request.Request(at, json.dumps(call).encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=50) as answer:
    answer = json.load(answer)
if "error" in answer:
    sys.exit(answer["error"]["message"])
"""


def ask(url, message=None):
    body = None if message is None else json.dumps(message).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=90) as answer:
        return json.load(answer)


async def verify(mcp_url):
    gateway = mcp_url.removesuffix("/mcp")
    card = ask(gateway + "/.well-known/agent-env.json")["children_environments"][0]
    rows = []
    for app in (child["name"] for child in card["children_environments"]):
        said = ask(f"{gateway}/svc/mcp-{card['name']}/agentenv/ext/computer-exec/run", {"argv": ["python3", "-c", INSIDE, app], "request_id": "reset-" + app})
        rows.append({"id": app, "result": said["exit_code"] == 0, "description": said["stderr"][-500:]})
    return rows
