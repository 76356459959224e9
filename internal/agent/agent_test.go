package agent

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

func TestSchema(t *testing.T) {
	tests := []struct {
		src  string
		want []string
	}{
		{`{}`, nil},
		{`{"type":"a2a_agent","id":"@local/x","image":{"ref":"h.x/y"},"default_env_vars":{"A":""},"metadata":{"default_model":"m","min_disk_size_gb":2.5,"takes_credentials":false}}`, nil},
		{
			`{"default_env_vars":{"A":1},"metadata":{"min_disk_size_gb":true,"other":1},"env":{}}`,
			[]string{"default_env_vars.A: must be a string, not 1", "metadata.min_disk_size_gb: must be a number, not true", "metadata: unknown key 'other'", "unknown key 'env'"},
		},
		{`{"type":"agent","metadata":{"default_model":3}}`, []string{"metadata.default_model: must be a string, not 3", "type: must be one of a2a_agent"}},
		{`{"metadata":{"takes_credentials":"no","min_disk_size_gb":-1}}`, []string{"metadata.min_disk_size_gb: must be at least 0", "metadata.takes_credentials: must be a boolean"}},
	}
	for _, tt := range tests {
		tree, l := doc.ParseJSON("agent.toml", []byte(tt.src))
		if l.HasErrors() {
			t.Fatal(l.Err())
		}
		l = nil
		Schema().Check(tree.Root(), "", &l)
		var got []string
		for _, p := range l.Of(diag.Error) {
			got = append(got, strings.TrimPrefix(p.Where+": "+p.Summary, ": "))
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %q", tt.src, got)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s\n got %s\nwant %s", tt.src, got[i], want)
			}
		}
	}
}
