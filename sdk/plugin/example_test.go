package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/sdk/plugin"
)

// A plugin with one step type. Its main function is os.Exit(p.Main(context.Background(), os.Args[1:])); `acme-plugin wheel agentenv-acme` writes the package that
// people install with `agent-env plugin add`. Package plugintest runs the step in tests.
func Example() {
	p := &plugin.Plugin{
		Name: "acme-plugin", Version: "1.2.0",
		Steps: []plugin.Step{{
			Name: "acme_toss", Description: "Scores whether a coin fell as expected", Scores: true,
			Schema: json.RawMessage(`{"type": "object", "properties": {"want": {"enum": ["heads", "tails"]}}, "required": ["want"]}`),
			Run: func(_ context.Context, c *plugin.Call) error {
				var d struct{ Want string }
				if err := c.Doc.Decode(&d); err != nil {
					return err
				}
				var side string
				if ok, err := c.Context("metadata/acme/side", &side); err != nil || !ok {
					return plugin.Fail("TossError", "nobody has tossed the coin")
				}
				score := 0.0
				if side == d.Want {
					score = 1
				}
				return c.Score(score, map[string]any{"side": side})
			},
		}},
	}
	for _, t := range p.Types() {
		fmt.Println(t.Group, t.Name)
	}
	// Output: agent_env.task_steps acme_toss
}
