package deploy

import (
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Row A43: an export that nobody bounds is waited for as long as the app says, where that is more than for others.
func TestA43TheTimeOfAnExport(t *testing.T) {
	slow := wire.Card{Name: "notes"}
	slow.Capabilities.Extensions = []wire.Extension{{URI: wire.URNComputerApp, Params: []byte(`{"data_timeout_s": 3600}`)}}
	v := &Env{Servers: []*Server{{Name: "desk", composed: &composed{wire.Card{Children: []wire.Card{slow, {Name: "clock"}}}}}}}
	for _, tt := range []struct {
		name        string
		asked, want time.Duration
	}{{"notes", 0, 3640 * time.Second}, {"clock", 0, 10 * time.Minute}, {"desk", 0, 10 * time.Minute}, {"notes", time.Minute, time.Minute}} {
		if got := v.exportLimit(tt.name, tt.asked); got != tt.want {
			t.Errorf("export of %s, asked for %s: %s, want %s", tt.name, tt.asked, got, tt.want)
		}
	}
}
