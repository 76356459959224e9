package world

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// TestDeployAgentPreflight: what can't be given to an agent is told before anything runs.
func TestDeployAgentPreflight(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	r.PutUniverse("@local/log", steptest.File{Path: "000000.tar", Text: "x"})
	r.PutFile("@local/file", steptest.File{Path: "f", Text: "x"})
	e := NewDeployAgent(r.Agents, r.Store)
	for fields, want := range map[string]string{
		`"enable_docker": true`: "enable_docker: agents get no container engine of their own",
		`"agent_changelog_object_url": "artifact:@local/log", "agent_snapshot_target_context_id": "c"`: "",
		`"agent_changelog_object_url": "artifact:@local/log@1", "enable_agent_changelog": true`:        "",
		`"agent_changelog_object_url": "s3://bucket/log"`:                                              "agent_changelog_object_url: 's3://bucket/log' is no address of recorded changes; name them as artifact:ID",
		`"agent_changelog_object_url": "artifact:@local/file"`:                                         "agent_changelog_object_url: '@local/file' is of type file in the store",
		`"agent_snapshot_target_context_id": "c"`:                                                      "agent_snapshot_target_context_id: there is nothing to restore into a conversation",
	} {
		got := steptest.Texts(e.Preflight(t.Context(), r.Doc(`{"id": "a", "type": "deploy_agent", `+fields+`}`), step.Plan{Type: r.Types}))
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}
