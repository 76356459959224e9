package front_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
)

func names(t *testing.T, list string) []string {
	t.Helper()
	var r struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(list), &r); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	var out []string
	for _, e := range r.Tools {
		out = append(out, e.Name)
	}
	return out
}

func TestListAndCall(t *testing.T) {
	for _, jsonAnswers := range []bool{true, false} {
		servers := map[string]*server{"cal": newServer(t, "cal", jsonAnswers), "notes": newServer(t, "notes", jsonAnswers)}
		_, srv := newGateway(t, front.Options{Name: "office"}, servers)
		c := begin(t, srv.URL)
		list := c.call("tools/list", `{}`)
		if got := strings.Join(names(t, list), " "); got != "cal_meta cal_ping notes_meta notes_ping" {
			t.Errorf("tools %s", got)
		}
		if !strings.Contains(list, `"title":"Ping"`) || !strings.Contains(list, `"readOnlyHint":true`) {
			t.Errorf("titles and annotations are lost: %s", list)
		}
		if got := c.call("tools/call", `{"name":"notes_ping","arguments":{"text":"h\u00e9"}}`); !strings.Contains(got, `"hé"`) {
			t.Errorf("call: %s", got)
		}
		// G4: what a client writes into _meta about who calls is replaced; the rest, and the arguments' bytes, stay.
		got := c.call("tools/call", `{"name":"cal_meta","arguments":{"n":12345678901234567890,"n":1.0,"s":"{\"a\": 1}"},"_meta":{"agentenv.io/role":"admin","agentenv.io/session":"x","own":[1]}}`)
		var r struct{ Content []struct{ Text string } }
		if err := json.Unmarshal([]byte(got), &r); err != nil || len(r.Content) != 2 {
			t.Fatalf("%s: %v", got, err)
		}
		var meta map[string]any
		if err := json.Unmarshal([]byte(r.Content[0].Text), &meta); err != nil {
			t.Fatal(err)
		}
		if meta["agentenv.io/role"] != access.DefaultRole || meta["agentenv.io/session"] != c.session || meta["own"] == nil {
			t.Errorf("_meta %v", meta)
		}
		if want := `{"n":12345678901234567890,"n":1.0,"s":"{\"a\": 1}"}`; r.Content[1].Text != want {
			t.Errorf("arguments %s, want %s", r.Content[1].Text, want)
		}
	}
}
