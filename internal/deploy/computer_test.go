package deploy

import (
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// TestLimitOfAnApp: what an app says of its time is its word, which can't be for ever, nor overflow (A43).
func TestLimitOfAnApp(t *testing.T) {
	for params, want := range map[string]time.Duration{
		`{"data_timeout_s":20}`: time.Minute, `{}`: 340 * time.Second, `{"data_timeout_s":-1}`: 340 * time.Second, `{"data_timeout_s":"x"}`: 340 * time.Second,
		`{"data_timeout_s":1e300}`: 24*time.Hour + 40*time.Second,
	} {
		card := wire.Card{}
		card.Capabilities.Extensions = []wire.Extension{{URI: wire.URNComputerApp, Params: []byte(params)}}
		if got := (holder{app: &card}).limit(); got != want {
			t.Errorf("%s: %s, want %s", params, got, want)
		}
	}
	if got := (holder{}).limit(); got != 0 {
		t.Errorf("a server's is %s", got)
	}
}
