"""Runs the peer's own steps and agent validators against agents that are served already, and prints what they recorded.

usage: validators.py URL PEER_URL FRESH_URL COUNTER_URL
COUNTER_URL answers how many tool calls the environment has seen, in place of a gateway's record inside a sandbox."""
import asyncio
import json
import sys
import types

import httpx

import agent_env.env.env as envs
from agent_env.a2a_agent import A2AAgent
from agent_env.a2a_agent import object_transfer as transfer
from agent_env.a2a_agent.staging import transfer_store
from agent_env.config import get_config
from agent_env.task_step import PromptAgentTaskStep, context as ctx
from agent_env.task_step.task_steps import a2a_agent_validator as v
from agent_env.task_step.task_steps.a2a_agent_validator.verify_a2a_install import VerifyA2AInstallStep
from agent_env.task_step.task_steps.peer_agents import PeerAgentsTaskStep
from agent_env.task_step.task_steps.register_agent_triggers import RegisterAgentTriggersStep
from agent_env.task_step.task_steps.snapshot_agent_state import SnapshotAgentStateTaskStep
from agent_env.task_step.task_step import TaskStep

main, other, fresh, counter = sys.argv[1:5]
NAME = TaskStep.DEFAULT_AGENT_NAME


class Stored:
    """The stored agent that validators keep their findings in."""
    metadata: dict = {}

    def update_metadata(self, m):
        Stored.metadata = m


def card(url):
    return httpx.get(url + "/.well-known/agent.json").raise_for_status().json()


async def tool_calls(_):
    return httpx.get(counter).json()


async def run():
    A2AAgent.get = staticmethod(lambda *a, **k: Stored())
    envs.require_gateway_url = lambda *a: counter
    v.VerifyA2AAgentMCPStep._count_tool_calls = staticmethod(tool_calls)
    c = ctx.TaskStepContext(deployed_agents=[
        ctx.DeployedAgent(NAME, main, a2a_url=main, a2a_card=card(main)),
        ctx.DeployedAgent("other", other, a2a_url=other, a2a_card=card(other)),
    ])
    c.deployed_envs = [types.SimpleNamespace(sandbox_id="none", env_id="e", gateway_url=counter)]
    out = {}

    async def step(name, make):
        nonlocal c
        try:
            c = await make().execute(c)
        except Exception as e:  # told to the test, which decides
            out.setdefault("errors", {})[name] = f"{type(e).__name__}: {e}"

    def prompt(id, text, **more):
        return lambda: PromptAgentTaskStep(id=id, version=None, prompt=text, prompt_id=id, poll_interval_seconds=1, **more)

    id = dict(version=None, a2a_agent_id="a")
    await step("card", lambda: v.VerifyA2AAgentCardStep(id="card", **id))
    await step("role", lambda: v.VerifyA2ARoleStep(id="role", **id))
    await step("prompt", prompt("hello", "Say hello."))
    await step("core", lambda: v.VerifyCoreA2AProtocolStep(id="core", prompt_id="hello", **id))
    await step("system_prompt", lambda: v.VerifyA2ASystemPromptStep(id="sp", poll_interval_seconds=0.2, **id))
    await step("mcp", lambda: v.VerifyA2AAgentMCPStep(id="mcp", poll_interval_seconds=0.2, **id))
    await step("trajectory", lambda: v.VerifyA2ATrajectoryStep(id="t", **id))

    # Skills: one as text, by hand; one as a bundle, by the validator's own call.
    inline = transfer.skill_add_call(A2AAgent.extension_method(card(main), A2AAgent.EXT_SKILL_CONFIG, "add"), None, name="code", description="The secret code.",
                                     skill_md="---\nname: code\ndescription: The secret code.\n---\nThe secret code is SKILL-77.", sandbox_type=None)
    httpx.post(main + "/ext/skill-config", json=inline.payload).raise_for_status()
    await step("skill prompt", prompt("skill", "What is the secret code?"))
    said = next((p.response for p in c.prompt_responses if p.prompt_id == "skill"), "")
    c.metadata.setdefault("verifications", {})["rubric"] = {"results": [{"id": "secret_code_inline", "score": 1.0 if "SKILL-77" in said else 0.0}]}
    store = get_config().get_object_store()
    store.put("skills/probe/SKILL.md", b"---\nname: validator-probe-bundle\ndescription: d\n---\nbody", content_type="text/markdown", allow_overwrite=True)
    await step("skills", lambda: v.VerifyA2ASkillConfigStep(id="skills", rubric_verifier_id="rubric", skill_bundle_object_url=store.object_url("skills/probe/"), **id))

    # A snapshot: taken by the peer's step, loaded into a fresh agent by its call.
    await step("plant", prompt("plant", "Remember SNAPSHOT-TOKEN-42."))
    await step("snapshot", lambda: SnapshotAgentStateTaskStep(id="snap", version=None, artifact_id="snap-artifact", prompt_id="plant"))
    for s in c.metadata.get("agent_snapshots", []):
        out["loaded"] = await load(s["bundle_object_url"])
    await step("recall", lambda: v.VerifyA2ASnapshotStep(id="snapv", rubric_verifier_id="recall", rubric_criterion_id="r", **id))

    await step("peering", lambda: PeerAgentsTaskStep(id="peers", version=None, peerings=[{"source_agent_name": NAME, "peer_agent_names": ["other"]}]))
    await step("peer prompt", prompt("peer", "Ask the peer for its token."))
    await step("peers", lambda: v.VerifyA2APeerAgentsStep(id="pv", a2a_agent_version=None, peer_prompt_id="peer", expected_token="PEERTOKEN-9", **id))
    await step("triggers", lambda: RegisterAgentTriggersStep(id="tr", version=None, agent_name="other", triggers=[
        {"id": "bye", "when": {"type": "conversational", "where": {"message": {"regex": "hello"}}}, "actions": [{"type": "say", "text": "bye"}, {"type": "end"}]}]))
    await step("modalities", lambda: v.VerifyA2AModalitiesStep(id="m", probes=[{"modality": "text", "prompt_id": "hello", "expected": "hello"}], **id))
    await step("install", lambda: VerifyA2AInstallStep(id="i", agent_name=NAME, **id))
    await step("identity", lambda: v.VerifyA2AAgentConfigIdentityStep(id="identity", **id))  # last, since it renames the agent
    out["verifications"] = {k: r for k, r in c.metadata["verifications"].items() if k not in ("rubric", "a2a_agent_card")}
    out["card"] = Stored.metadata.get("validated_agent_card")
    out["responses"] = {p.prompt_id: [p.response, p.error_type, p.tool_call_count] for p in c.prompt_responses}
    print(json.dumps(out, default=str))


async def load(url):
    method, path = A2AAgent.operation(A2AAgent.find_extension(card(fresh), A2AAgent.EXT_SNAPSHOT), "load")
    store = transfer_store(get_config().get_object_store(), fresh, card(fresh), sandbox_type=None)
    call = await asyncio.to_thread(transfer.snapshot_load_call, method, store, agent_name="fresh", bundle_url=url,
                                   file_names=["trajectory", "workspace"], target_context_id="restored", sandbox_type=None)
    answer = await transfer.invoke_transfer(fresh + path, call, verb="PUT", operation="snapshot load", timeout=60, store=store)
    r = httpx.post(fresh + "/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {
        "messageId": "m", "role": "user", "contextId": answer["context_id"], "parts": [{"kind": "text", "text": "What did I ask you to remember?"}]}}}, timeout=60).json()
    return r["result"]["status"]["message"]["parts"][0]["text"]


asyncio.run(run())
