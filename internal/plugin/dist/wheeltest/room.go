package wheeltest

// Room has an environment type, an artifact type and a step type, all three classes: room_room is a server in the plugin's own process, room_table a
// table whose rows are stored in capitals, and room_look a step that scores what they hold.
func Room() Wheel {
	return Wheel{
		Name: "agentenv-e2e-room", Version: "1.0.0",
		Entries: map[string]map[string]string{
			"agent_env.envs":      {"room_room": "agentenv_e2e_room:Room"},
			"agent_env.artifacts": {"room_table": "agentenv_e2e_room:Table"},
			Steps:                 {"room_look": "agentenv_e2e_room:Look"},
		},
		Files: map[string]string{"agentenv_e2e_room.py": room},
	}
}

const room = `import http.server, json, os, threading
from typing import ClassVar, List

from agent_env.artifact import Artifact
from agent_env.env import Env
from agent_env.env.env import DeployedEnv
from agent_env.task_step.task_step import TaskStep
from agentenv_protocol.client import get_data

SERVERS = {}


def handler(words, first):
    def answer(m, p):
        if m == "initialize":
            return {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "room", "version": "1"}}
        if m == "tools/list":
            return {"tools": [{"name": "words", "description": "All.", "inputSchema": {"type": "object"}}]}
        if m == "tools/call":
            return {"content": [{"type": "text", "text": " ".join(words)}], "isError": False}
        if m == "data/reset":
            words.clear()
        if m == "data/get":
            return {"parts": [{"kind": "data", "data": {"words": words}}]}
        return {}

    class H(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/mcp":
                return self.reply(405, b"")
            self.reply(200, json.dumps({"name": "room", "protocolVersion": "1.0", "url": "/agentenv", "preferredTransport": "JSONRPC",
                "capabilities": {"operations": ["data/reset", "data/get"]}}).encode())

        def do_POST(self):
            m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in m:
                return self.reply(202, b"")
            self.reply(200, json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": answer(m["method"], m.get("params") or {})}).encode())

    return H


class Room(Env):
    type: ClassVar[str] = "room_room"

    async def deploy(self, **options):
        words = list(self.words)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(words, list(words)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        SERVERS[port] = (server, words, list(words))
        open(self.book, "w").close()
        url = f"http://127.0.0.1:{port}"
        return DeployedEnv(env_id=self.id, env_version=self.version, env_type=self.type, environment_url=url, mcp_url=url + "/mcp",
            metadata={"port": port, "book": self.book})

    @classmethod
    async def from_deployed_env(cls, deployed):
        env = cls(id=deployed.env_id, version=deployed.env_version)
        env.port, env.book = deployed.metadata["port"], deployed.metadata["book"]
        return env

    async def reset(self, deployed):
        _, words, first = SERVERS[self.port]
        words[:] = first

    async def close(self):
        if self.port in SERVERS:
            SERVERS.pop(self.port)[0].shutdown()
        if os.path.exists(self.book):
            os.remove(self.book)


class Table(Artifact):
    type: ClassVar[str] = "room_table"
    columns: List[str]

    @staticmethod
    async def write(id, config, files):
        out = []
        for f in files:
            with open(f["file"]) as r:
                text = r.read()
            path = os.path.join(os.environ["TMPDIR"], f"{len(out)}.out")
            with open(path, "w") as w:
                w.write(text.upper())
            out.append({"path": f["path"], "file": path})
        return {"body": {"columns": config["columns"], "rows": len(files)}, "files": out}


class Look(TaskStep):
    type: ClassVar[str] = "room_look"
    entity_refs = ()

    def __init__(self, id, version=None, want="", depends_on=None, fail_task_on_error=True):
        super().__init__(id, version, depends_on=depends_on, fail_task_on_error=fail_task_on_error)
        self.want = want

    def to_dict(self):
        return {**super().to_dict(), "want": self.want}

    @classmethod
    def from_dict(cls, data):
        return cls(**cls._base_from_dict(data), want=data.get("want", ""))

    async def execute(self, context):
        env = context.deployed_envs[0]
        parts = await get_data(env.environment_url)
        found = json.dumps(parts, default=str)
        context.metadata.setdefault("verifications", {})[self.id] = {"score": 1 if self.want in found else 0, "found": found, "book": env.metadata.get("book")}
        return context
`
