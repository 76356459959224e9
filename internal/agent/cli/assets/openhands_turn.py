"""One turn of an OpenHands conversation: reads a JSON object from stdin, writes each event as a line of JSON to stdout.

The last line has the kind AgentEnvResult. What libraries print goes to stderr.
"""

import json
import os
import sys
import uuid

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def write(value):
    out.write(json.dumps(value, separators=(",", ":")) + "\n")


def text_of(message):
    return "".join(getattr(c, "text", "") for c in message.content)


def skill_of(path, Skill):
    """A skill by its folder's name. One that the library takes for unsound is shown as the text that it is: a turn must not fail for it."""
    name = os.path.basename(os.path.dirname(path))
    try:
        return Skill.load(path, strict=False).model_copy(update={"name": name})
    except Exception as e:
        print(f"skill {name}: {e}", file=sys.stderr)
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        return Skill(name=name, content=text, source=path, description=f"About {name}.", is_agentskills_format=True)


def main():
    t = json.load(sys.stdin)
    from pydantic import SecretStr
    from openhands.sdk import LLM, Agent, AgentContext, Conversation, Message, TextContent, Tool
    from openhands.sdk.event import ActionEvent, MessageEvent
    from openhands.sdk.mcp.config import MCPServer
    from openhands.tools.preset.default import get_default_tools, register_default_tools

    more = {}
    if t.get("effort"):
        more["reasoning_effort"] = t["effort"]
    llm = LLM(
        model="openai/" + t["model"], base_url=t["base_url"], api_key=SecretStr(t["api_key"]), usage_id="agent",
        num_retries=2, retry_min_wait=1, retry_max_wait=8, **more,
    )
    register_default_tools(enable_browser=False)
    context = {}
    if t.get("append_system_prompt"):
        context["system_message_suffix"] = t["append_system_prompt"]
    if t.get("skills"):
        from openhands.sdk.skills import Skill

        context["skills"] = [skill_of(path, Skill) for path in t["skills"]]
    kwargs = {}
    if context:
        kwargs["agent_context"] = AgentContext(**context)
    if t.get("system_prompt"):
        kwargs["system_prompt"] = t["system_prompt"]
    agent = Agent(
        llm=llm, tools=get_default_tools(enable_browser=False),
        mcp_config={s["name"]: MCPServer(url=s["url"], transport="http") for s in t["servers"]}, **kwargs,
    )
    session = uuid.UUID(t["session"]) if t.get("session") else uuid.uuid4()
    last = {"text": "", "finished": None}

    def heard(event):
        write(event.model_dump(mode="json", exclude_none=True))
        if isinstance(event, MessageEvent) and event.source == "agent":
            last["text"] = text_of(event.llm_message)
        if isinstance(event, ActionEvent) and event.tool_name == "finish":
            last["text"] = getattr(event.action, "message", "") or last["text"]

    conversation = Conversation(
        agent=agent, workspace=t["workspace"], persistence_dir=t["state"], conversation_id=session, callbacks=[heard],
        max_iteration_per_run=t["max_iterations"], visualizer=None, delete_on_close=False,
    )
    conversation.send_message(Message(role="user", content=[TextContent(text=t["prompt"])]))
    end = {"kind": "AgentEnvResult", "session": str(session)}
    try:
        conversation.run()
        end["status"] = conversation.state.execution_status.value
    except Exception as e:
        end["status"], end["error"] = "error", str(e)
        cause, names = e, []
        while cause is not None and len(names) < 16:
            names.append(type(cause).__name__)
            status = getattr(cause, "status_code", None)
            if isinstance(status, int):
                end["http_status"] = status
            cause = cause.__cause__ or getattr(cause, "original_exception", None) or cause.__context__
        end["error_types"] = names
    metrics = conversation.conversation_stats.get_combined_metrics()
    usage = metrics.accumulated_token_usage
    if usage is not None:
        end["usage"] = {"input": usage.prompt_tokens, "output": usage.completion_tokens, "cached": usage.cache_read_tokens}
    end["text"] = last["text"]
    write(end)
    out.flush()
    conversation.close()


if __name__ == "__main__":
    try:
        main()
    finally:
        out.flush()
