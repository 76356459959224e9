package step

import "agentenv.internal/agentenv/internal/doc"

// reviewKinds wait for people.
func reviewKinds() []*Kind {
	return []*Kind{{
		Name: "review", Doc: "waits until a person decides to continue or to abort",
		Fields: doc.Schema{Fields: []doc.Field{
			may("label", text(), nil, "what is to be decided"),
			may("timeout_seconds", seconds(), 10800, "how long it waits"),
			may("poll_interval_seconds", seconds(), 5, "pause between two looks at the decision"),
		}},
	}}
}
