package step

import (
	"encoding/json"
	"testing"
)

func TestDocumentIsWhatItsStepsLeft(t *testing.T) {
	var h History
	h.Commit(0, diff(func(d *Diff) {
		noError(t, d.Set("agent_model", "m"))
		noError(t, d.Append("deployed_sandboxes", map[string]any{"sandbox_name": "box"}))
		noError(t, d.Set(Child(VerificationsPath, "a/b%"), map[string]any{"score": 1}))
		noError(t, d.Set("metadata/acme", map[string]any{"x": 1, "y": map[string]any{"z": []int{1}}}))
	}))
	h.Commit(1, diff(func(d *Diff) {
		noError(t, d.Append("deployed_sandboxes", map[string]any{"sandbox_name": "other"}))
		noError(t, d.Append("metadata/acme/y/z", 2))
		d.Unset("metadata/acme/x")
		d.Unset("metadata/nothing/here")
	}))
	h.Commit(2, diff(func(d *Diff) {
		noError(t, d.Set("metadata/acme/w", nil))
		noError(t, d.Append("agent_model", "a list now"))
	}))
	h.Commit(3, diff(func(d *Diff) { noError(t, d.Set("metadata/acme", "gone")) }))
	for _, c := range []struct {
		in   func(int) bool
		want string
	}{
		{only(), `{}`},
		{only(0), `{"agent_model":"m","deployed_sandboxes":[{"sandbox_name":"box"}],"metadata":{"acme":{"x":1,"y":{"z":[1]}},"verifications":{"a/b%":{"score":1}}}}`},
		{only(0, 1), `{"agent_model":"m","deployed_sandboxes":[{"sandbox_name":"box"},{"sandbox_name":"other"}],"metadata":{"acme":{"y":{"z":[1,2]}},"verifications":{"a/b%":{"score":1}}}}`},
		{only(1), `{"deployed_sandboxes":[{"sandbox_name":"other"}],"metadata":{"acme":{"y":{"z":[2]}}}}`},
		{only(0, 2), `{"agent_model":["a list now"],"deployed_sandboxes":[{"sandbox_name":"box"}],"metadata":{"acme":{"w":null,"x":1,"y":{"z":[1]}},"verifications":{"a/b%":{"score":1}}}}`},
		{only(0, 1, 2, 3), `{"agent_model":["a list now"],"deployed_sandboxes":[{"sandbox_name":"box"},{"sandbox_name":"other"}],"metadata":{"acme":"gone","verifications":{"a/b%":{"score":1}}}}`},
	} {
		got, err := h.View(c.in).Document()
		if err != nil || string(got) != c.want {
			t.Errorf("%s %v\nwant %s", got, err, c.want)
		}
	}
	// A step that runs again counts where it ended last.
	h.Commit(0, diff(func(d *Diff) { noError(t, d.Set("metadata/acme", json.RawMessage(`{"x":2}`))) }))
	got, err := h.View(everything).Document()
	if want := `{"agent_model":["a list now"],"deployed_sandboxes":[{"sandbox_name":"other"}],"metadata":{"acme":{"x":2}}}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}
