"""An environment on the peer's SDK that does all the protocol knows: what the fixture of the conformance checks expects of "notes"."""
import base64
import json
import sys
from typing import Literal

from agentenv_protocol import (AgentEnvEnvironment, AgentEnvError, ToolContext, add_data, environment_card, extension, get_data,
                               reset_data, tool)
from agentenv_protocol.transfers import WriteNamespaceGrant


@environment_card(name="notes")
class Notes(AgentEnvEnvironment):
    tool_access = "--tool-access" in sys.argv

    def __init__(self):
        self.texts, self.mode = [], ""

    @tool(name="notes_add")
    def notes_add(self, text: str, pri: Literal["lo", "hi"] = "lo") -> str:
        """Add a note."""
        if text == "coded":
            raise AgentEnvError("bad_note", "no such note", hint="try another")
        if text == "crash":
            raise RuntimeError("kaboom")
        return "ok"

    @tool(name="whoami")
    def whoami(self, who: ToolContext) -> str:
        """Tell who calls."""
        return json.dumps({"role": who.caller.role, "session": who.caller.session})

    @tool(name="admin", hidden_by_default=True)
    def admin(self) -> str:
        """Only for tasks."""
        return "ok"

    @reset_data
    def wipe(self):
        self.texts = []

    @add_data
    def load(self, parts):
        for part in parts:
            if part.kind == "text":
                self.texts.append(part.text)
                continue
            seed = part.data if part.kind == "data" else json.loads(base64.b64decode(part.file.bytes))
            if "fail" in seed:
                raise RuntimeError(seed["fail"])
            self.texts += [note["text"] for note in seed["notes"]]

    if "--plain-get" in sys.argv:
        @get_data
        def dump(self):
            return self.parts()
    else:
        @get_data
        def dump(self, write_namespace: WriteNamespaceGrant | None = None):
            return self.parts()

    def parts(self):
        return [{"kind": "data", "data": {"notes": self.texts}}]

    @extension("urn:example:fault/v1", op="set")
    def set(self, mode: Literal["live", "fixed"], rate: float = 0.0):
        if rate > 1:
            raise RuntimeError("rate out of range")
        if mode == "fixed" and self.mode == "fixed":
            raise AgentEnvError("conflict", "already fixed", retryable=True, hint="set it live first", status=409)
        self.mode = mode

    @extension("urn:example:fault/v1", op="read", method="GET")
    def read(self, n: int):
        return {"n": n}


if __name__ == "__main__":
    Notes().serve()
