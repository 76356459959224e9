"""Each app is as it was installed again, and the files of the computer are as they were."""
import base64
import json
import urllib.request

MARK = "urn:agentenv:data-objects/v1"
WANT = {
    "desk": {"Documents/2026/costs.csv": "rent,1200\npaper,14\n", "Documents/plan.txt": "Monday: the printer is repaired.\n"},
    "notes": {"Notes/welcome.txt": "Welcome. Every file in Notes is a note.\n"},
    "clock": {},
}


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
    got = {child["name"]: data(gateway + child["url"]) for child in (card, *card["children_environments"])}
    return [{"id": name, "result": got.get(name) == want, "description": f"it holds {got.get(name)}"} for name, want in WANT.items()]
