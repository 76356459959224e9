"""An agent on the peer's SDK that answers, dawdles, fails or crashes as it is told."""
import asyncio

from agentenv_protocol.a2a_agent import (MCP_CONFIG_V1, SKILL_CONFIG_V1, SNAPSHOT_V1, TRAJECTORY_V1, TRIGGERS_V1, AgentConfig, AgentEnvAgent,
                                         AgentIdentity, BundleSkillRequest, InlineSkillRequest, NamespaceChangelogEnableRequest,
                                         NamespaceChangelogEnableResponse, ObjectChangelogApplyRequest, ObjectChangelogApplyResponse,
                                         ObjectSnapshotLoadRequest, ObjectSnapshotLoadResponse, ObjectSnapshotSaveRequest,
                                         ObjectSnapshotSaveResponse, SkillAddResponse, SnapshotUploadedObjects, TaskRequest, TaskResult,
                                         WriteOnly, a2a_agent, enable, extension, upload)


class Config(AgentConfig):
    provider_token: WriteOnly[str | None] = None


@a2a_agent(identity=AgentIdentity(name="told", description="Does as it is told.", version="1.0.0"), config=Config,
           extensions=[enable(x) for x in (MCP_CONFIG_V1, TRIGGERS_V1)]
           + [enable(TRAJECTORY_V1, variants={"get": ["task_events", "context_events"]})])
class Told(AgentEnvAgent):
    async def run(self, request: TaskRequest[Config]) -> TaskResult:
        text = "".join(getattr(p, "text", "") for p in request.parts)
        request.trajectory.set_format("told")
        request.trajectory.append({"told": text})
        if text == "dawdle":
            await asyncio.sleep(60)
        if text == "fail":
            return TaskResult.failure(code="told.refused", message="I was told to")
        if text == "crash":
            raise RuntimeError("s3cret-text")
        return TaskResult.text(text)

    @extension(SKILL_CONFIG_V1.add.inline)
    async def add_inline(self, request: InlineSkillRequest) -> SkillAddResponse:
        return SkillAddResponse(name=request.name)

    @extension(SKILL_CONFIG_V1.add.bundle)
    async def add_bundle(self, request: BundleSkillRequest) -> SkillAddResponse:
        return SkillAddResponse(name=request.name)

    @extension(SNAPSHOT_V1.save)
    async def save(self, request: ObjectSnapshotSaveRequest) -> ObjectSnapshotSaveResponse:
        done = await upload(request.objects.trajectory, b"told")
        return ObjectSnapshotSaveResponse(context_id=request.context_id, objects=SnapshotUploadedObjects(trajectory=done))

    @extension(SNAPSHOT_V1.load)
    async def load(self, request: ObjectSnapshotLoadRequest) -> ObjectSnapshotLoadResponse:
        return ObjectSnapshotLoadResponse(context_id=request.target_context_id or "new")

    @extension(SNAPSHOT_V1.changelog.enable)
    async def enable_changelog(self, request: NamespaceChangelogEnableRequest) -> NamespaceChangelogEnableResponse:
        return NamespaceChangelogEnableResponse(roots=request.roots or [])

    @extension(SNAPSHOT_V1.changelog.apply)
    async def apply_changelog(self, request: ObjectChangelogApplyRequest) -> ObjectChangelogApplyResponse:
        return ObjectChangelogApplyResponse(count=len(request.increments))


if __name__ == "__main__":
    Told().serve()
