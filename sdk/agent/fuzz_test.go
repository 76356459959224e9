package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

// FuzzCall: any body is read as a call or refused by a code, with an id that can be sent back.
func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],"metadata":{}},"configuration":{"blocking":false,"historyLength":1}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"tasks/get","params":{"id":"t","historyLength":0}}`, `[]`, `{`, ``, `{"jsonrpc":"2.0","id":[1],"method":"x"}`,
		`{"jsonrpc":"2.0","method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"http://x"}},{"kind":"data","data":{}}],"contextId":null,"taskId":"t"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, rerr := decodeCall(b)
		if req.ID != nil && !json.Valid(req.ID) {
			t.Fatalf("id %q", req.ID)
		}
		if rerr != nil {
			if rerr.Code >= 0 || rerr.Message == "" {
				t.Fatalf("%+v", rerr)
			}
			return
		}
		if p, rerr := decodeSend(req.Params); rerr == nil {
			if err := p.Message.Check(); err != nil {
				t.Fatal(err)
			}
			if _, err := encode(p.Message); err != nil {
				t.Fatal(err)
			}
		}
		if q, rerr := decodeQuery(req.Params); rerr == nil && (q.ID == "" || q.history() < 0) {
			t.Fatalf("%+v", q)
		}
	})
}

// FuzzExtensions: any body of an extension's call is read or refused with 400 and a text, and what is read holds what its operation relies on.
func FuzzExtensions(f *testing.F) {
	const object = `{"media_type":"application/octet-stream","max_bytes":1,"read":{"kind":"http-get","url":"https://x/y","expires_at":"2100-01-01T00:00:00Z"}}`
	for _, s := range []string{
		`{"name":"a","description":"d","role":"r","timeout_seconds":1.5}`, `{"url":"http://x","name":"n","headers":{"a":"b"}}`, `{"peers":[{"name":"n","url":"http://x","card":{}}]}`,
		`{"name":"a","description":"d","skill_md":"x"}`, `{"name":"a","description":"d","skill_bundle":{"max_total_bytes":9,"files":[{"path":"SKILL.md","object":` + object + `}]}}`,
		`{"task_id":"t","after":1,"limit":2}`, `{"context_id":"c","objects":{"trajectory":{"media_type":"application/json","max_bytes":1,"write":{"kind":"http-put","url":"https://x","expires_at":"2100-01-01T00:00:00Z"}}}}`,
		`{"objects":{"trajectory":` + object + `},"target_context_id":"c"}`, `{"increments":[{"sequence":0,"object":` + object + `}],"resume_conversation":true}`,
		`{"write_namespace":{"root_path":"r","expires_at":"2100-01-01T00:00:00Z","max_objects":1,"max_object_bytes":1,"max_total_bytes":1,"write":{"kind":"http-post-policy","url":"https://x","fields":{},"path_field":"k","file_field":"f"}},"roots":["/a"]}`,
		`{"triggers":[{"id":"a","once":false,"when":{"type":"all","of":[{"type":"step","turn":1},{"type":"conversational","where":{"message":{"regex":"a+"}}}]},"actions":[{"type":"say","text":"x"},{"type":"end"}]}]}`,
		`{"turn":1,"solver_message":"x","context_id":"c","env_triggers":{"e":{"i":"fired"}}}`, `{"name":"p","prompt":"x","timeout_seconds":5}`,
	} {
		f.Add([]byte(s))
	}
	type own struct {
		Limit []int `json:"limit" enum:"a"`
	}
	a := New("a", nil, WithConfig(own{}), WithPeers())
	a.peers.list = []Peer{{Name: "p", URL: "http://x"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		refused := func(_ any, err error) bool {
			if err == nil {
				return false
			}
			if r, ok := errors.AsType[*Refusal](err); ok && (r.Status != 400 || r.Text == "") {
				t.Fatalf("%+v", r)
			}
			return true
		}
		set, err := a.config.decode(b)
		refused(set, err)
		if s, err := decodeServer(b); !refused(s, err) && s.URL == "" {
			t.Fatal("a server without url")
		}
		if s, err := decodeSkill(b); !refused(s, err) {
			for _, o := range s.files {
				if wire.CheckPath(o.path) != nil || o.object.MaxBytes <= 0 {
					t.Fatalf("%+v", o)
				}
			}
			if strings.ContainsAny(s.name, "/\\") || strings.HasPrefix(s.name, ".") {
				t.Fatalf("name %q", s.name)
			}
		}
		if r, err := decodeTrajectory(b); !refused(r, err) && ((r.task == "") == (r.context == "") || r.after < 0 || r.limit < 1 || r.limit > maxPage) {
			t.Fatalf("%+v", r)
		}
		if r, err := decodeSave(b); !refused(r, err) && r.trajectory == nil {
			t.Fatal("nothing to save to")
		}
		if r, err := decodeLoad(b); !refused(r, err) && r.trajectory == nil {
			t.Fatal("nothing to load")
		}
		if r, err := decodeEnable(b); !refused(r, err) && r.namespace.MaxObjects < 1 {
			t.Fatal("no namespace")
		}
		if r, err := decodeApply(b); !refused(r, err) {
			for _, x := range r.increments {
				if x.object == nil || x.sequence < 0 {
					t.Fatalf("%+v", x)
				}
			}
		}
		if ps, err := decodePeers(b); !refused(ps, err) {
			for _, p := range ps {
				if p.Name == "" || p.URL == "" {
					t.Fatalf("%+v", p)
				}
			}
		}
		if m, err := a.decodePeerMessage(b, "timeout_seconds"); err == nil && len(m.parts) == 0 {
			t.Fatal("nothing to send")
		}
		fuzzTriggers(t, b, refused)
	})
}

func fuzzTriggers(t *testing.T, b []byte, refused func(any, error) bool) {
	t.Helper()
	g := &triggers{contexts: map[string]*triggerContext{}}
	if out, err := g.register(t.Context(), b); !refused(out, err) {
		if _, err := g.decide(t.Context(), []byte(`{"turn":1,"solver_message":"aaa"}`)); err != nil {
			if r, ok := errors.AsType[*Refusal](err); !ok || r.Status != 504 {
				t.Fatal(err)
			}
		}
	}
	if r, err := decodeDecide(b); !refused(r, err) && (r.turn < 1 || r.context == "") {
		t.Fatalf("%+v", r)
	}
}

// FuzzStagingPath: a path that is taken stays below its id.
func FuzzStagingPath(f *testing.F) {
	id := strings.Repeat("i", minStagingID)
	for _, s := range []string{id + "/a", "../" + id, id + "/../x", id, "", id + "//", id + "\x00/a", id + `\a`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if checkStaging(p) != nil {
			return
		}
		first, _, _ := strings.Cut(p, "/")
		if len(first) < minStagingID || len(p) > maxStagingPath || strings.Contains("/"+p+"/", "/../") || strings.Contains(p, "//") {
			t.Fatalf("%q was taken", p)
		}
	})
}
