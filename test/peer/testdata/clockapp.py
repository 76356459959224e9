"""An app of a computer on the peer's SDK: it keeps alarms, and serves at the socket that it is given."""
import os

import uvicorn
from agentenv_protocol import AgentEnvEnvironment, add_data, environment_card, get_data, reset_data, tool


@environment_card(name="clock")
class Clock(AgentEnvEnvironment):
    def __init__(self):
        self.alarms = []

    @tool(name="next_alarm")
    def next_alarm(self) -> str:
        """Tell the first alarm."""
        return min(self.alarms, default="none")

    @reset_data
    def wipe(self):
        self.alarms = []

    @add_data
    def load(self, parts):
        for part in parts:
            self.alarms += part.data["alarms"]

    @get_data
    def dump(self):
        return [{"kind": "data", "data": {"alarms": self.alarms}}] if self.alarms else []


uvicorn.run(Clock().create_app().streamable_http_app(), uds=os.environ["AGENTENV_APP_SOCKET"], log_level="warning")
