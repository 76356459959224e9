package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

type settings struct {
	Model  string   `json:"model" jsonschema:"The model to ask." enum:"big,small"`
	Token  string   `json:"token" writeonly:"true"`
	Turns  *int     `json:"max_turns"`
	Format any      `json:"output_format"`
	Extra  []string `json:"extra"`
}

// TestConfig: settings are strict, live on the card, readable but for secrets, and stand for a turn as they were when it began.
func TestConfig(t *testing.T) {
	r := serve(t, func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		c := agent.Config[settings](t)
		turns := 0
		if c.Turns != nil {
			turns = *c.Turns
		}
		return agent.Text(fmt.Sprint(c.Model, " ", c.Token, " ", turns, " ", c.Extra, " ", t.Settings.Role, " ", t.Settings.Timeout(), " ", t.Settings.Name)), nil
	}, agent.WithConfig(settings{Model: "small", Extra: []string{"x"}}))
	const p = "/ext/agent-config"
	for body, why := range map[string]string{
		`{"mode":"big"}`:                `"mode": there is no such field`,
		`{"Model":"big"}`:               `"Model": there is no such field`,
		`{"model":5}`:                   "model: it must be of type string",
		`{"model":"huge"}`:              "model: it must be one of big, small",
		`{"max_turns":1.5}`:             "max_turns: it must be of type integer",
		`{"name":" "}`:                  "name: it must not be blank",
		`{"name":null}`:                 "name: want a text",
		`{"timeout_seconds":"1"}`:       "timeout_seconds: it must be of type number",
		`{"token":"a","token":"b"}`:     "twice",
		`[]`:                            "want a JSON object",
		`{"token":5,"extra":["s3c",1]}`: "extra: it must be of type array; token: it must be of type string",
	} {
		if out := r.want("POST", p, body, 400, why); strings.Contains(out, "s3c") {
			t.Error("a value is shown")
		}
	}
	r.want("GET", p, "", 200, `{"config":{}}`)
	r.want("GET", p+"?x=1", "", 400, "query")
	r.want("POST", p, `{}`, 200, `{"status":"updated"}`)
	if got := r.ask("x", "").Status.Message.Text(); got != "small  0 [x]  10m0s a" {
		t.Errorf("%q", got)
	}
	r.want("POST", p, `{"model":"big","token":"t0p","max_turns":7,"extra":["y","z"],"role":"solver","timeout_seconds":2.5,"name":"Ann","description":"does"}`, 200, "")
	if got := r.ask("x", "").Status.Message.Text(); got != "big t0p 7 [y z] solver 2.5s Ann" {
		t.Errorf("%q", got)
	}
	out := r.want("GET", p, "", 200, `"token":"***"`)
	if strings.Contains(out, "t0p") || !strings.Contains(out, `"max_turns":7`) {
		t.Error(out)
	}
	card := r.want("GET", wire.AgentCardPath, "", 200, `"name":"Ann","description":"does"`)
	if !strings.Contains(card, `"writeOnly":true`) || strings.Contains(card, `"default":`) || !strings.Contains(card, `"supported":["description","extra","max_turns","model","name","output_format","role","timeout_seconds","token"]`) {
		t.Error(card)
	}
	r.want("POST", p, `{"model":null,"role":null}`, 200, "")
	if got := r.ask("x", "").Status.Message.Text(); got != "small t0p 7 [y z]  2.5s Ann" {
		t.Errorf("%q", got)
	}
}

// TestServers: MCP servers reach turns with their headers, which no list tells.
func TestServers(t *testing.T) {
	r := serve(t, func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		return agent.Text(fmt.Sprint(t.Servers)), nil
	}, agent.WithMCP())
	const p = "/ext/mcp-config"
	r.want("POST", p, `{"url":"http://env/mcp","name":"mail","headers":{"AgentEnv-Role":"solver"}}`, 200, `{"name":"mail","status":"added","url":"http://env/mcp"}`)
	r.want("POST", p, `{"url":"http://env/2"}`, 200, `"name":"mcp_`)
	for body, status := range map[string]int{
		`{"url":"ftp://x"}`: 400, `{"url":"x"}`: 400, `{"url":"http://x","headers":{"a":1}}`: 400, `{"url":"http://x","headers":[]}`: 400,
		`{"url":"http://x","name":""}`: 400, `{"url":"http://x","name":"peer_agents"}`: 409, `{"url":"http://env/mcp"}`: 409,
	} {
		r.want("POST", p, body, status, "")
	}
	if out := r.want("GET", p, "", 200, `"mail":{"url":"http://env/mcp","has_headers":true}`); strings.Contains(out, "solver") {
		t.Error(out)
	}
	if got := r.ask("x", "").Status.Message.Text(); !strings.HasPrefix(got, "[{mail http://env/mcp map[AgentEnv-Role:solver]} {mcp_") {
		t.Error(got)
	}
}

// bucket is a store that keeps what is put, and answers what was, over TLS, as grants demand.
type bucket struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]string
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	b := &bucket{objects: map[string]string{}}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch r.Method {
		case "GET":
			v, ok := b.objects[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, v)
		case "PUT":
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("X-Grant") != "g" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			b.objects[r.URL.Path] = string(body) + " " + r.Header.Get("Content-Type")
		case "POST":
			if err := r.ParseMultipartForm(1 << 20); err != nil {
				t.Error(err)
			}
			f, _, err := r.FormFile("file")
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(f)
			if err != nil {
				t.Error(err)
			}
			b.objects["/"+r.FormValue("key")] = string(body)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bucket) read(path string) string {
	return fmt.Sprintf(`{"media_type":"application/octet-stream","max_bytes":100,"read":{"kind":"http-get","url":"%s%s","expires_at":"2100-01-01T00:00:00Z"}}`, b.URL, path)
}

func (b *bucket) write(path, media string, most int) string {
	return fmt.Sprintf(`{"media_type":%q,"max_bytes":%d,"write":{"kind":"http-put","url":"%s%s","expires_at":"2100-01-01T00:00:00Z","headers":{"X-Grant":"g"}}}`, media, most, b.URL, path)
}

// TestSkills: a skill is a folder, from text or by grants, whole or not at all; it shows on the card and in turns.
func TestSkills(t *testing.T) {
	b := newBucket(t)
	b.objects["/s"], b.objects["/r"] = "# skill", "run"
	dir := t.TempDir()
	r := serve(t, func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		var out []string
		for _, s := range t.Skills {
			md, err := os.ReadFile(filepath.Join(s.Dir, "SKILL.md"))
			if err != nil {
				return agent.Result{}, err
			}
			out = append(out, s.Name+"="+string(md))
		}
		return agent.Text(strings.Join(out, " ")), nil
	}, agent.WithSkills(dir, func(_ context.Context, s agent.Skill) error {
		if s.Name == "unwanted" {
			return agent.Refuse(422, "not this one")
		}
		return nil
	}), agent.WithHTTPClient(b.Client()), agent.WithSkill(wire.AgentSkill{ID: "x", Name: "own", Description: "d"}))
	const p = "/ext/skill-config"
	bundle := func(name string, max int, files ...string) string {
		return fmt.Sprintf(`{"name":%q,"description":"d","skill_bundle":{"max_total_bytes":%d,"files":[%s]}}`, name, max, strings.Join(files, ","))
	}
	file := func(path, at string) string { return fmt.Sprintf(`{"path":%q,"object":%s}`, path, b.read(at)) }
	for body, why := range map[string]string{
		`{"name":"a","description":"d"}`: "want either",
		`{"name":"a","description":"d","skill_md":"x","skill_bundle":{"max_total_bytes":1,"files":[]}}`: "want either",
		`{"name":"../a","description":"d","skill_md":"x"}`:                                              "name:",
		bundle("a", 1000, file("SKILL.md", "/s"), file("SKILL.md", "/s")):                               "twice",
		bundle("a", 150, file("SKILL.md", "/s"), file("r", "/r")):                                       "max_total_bytes",
		bundle("a", 1000, file("SKILL.md", "/s"), file("../r", "/r")):                                   "path",
		bundle("a", 1000, file("SKILL.md", "/s"), file("SKILL.md/r", "/r")):                             "conflicts",
		bundle("a", 0, file("SKILL.md", "/s")):                                                          "max_total_bytes",
	} {
		r.want("POST", p, body, 400, why)
	}
	r.want("POST", p, bundle("a", 1000, file("SKILL.md", "/s"), file("sub/run", "/none")), 502, `{"error":{"code":"transfer_rejected"`)
	r.want("POST", p, `{"name":"unwanted","description":"d","skill_md":"x"}`, 422, "not this one")
	r.want("POST", p, `{"name":"own","description":"d","skill_md":"x"}`, 409, "")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("refused skills left %v, %v", left, err)
	}
	r.want("POST", p, bundle("a", 1000, file("SKILL.md", "/s"), file("sub/run", "/r")), 200, `{"name":"a"}`)
	r.want("POST", p, `{"name":"b","description":"dd","skill_md":"# b"}`, 200, `{"name":"b"}`)
	if got, err := os.ReadFile(filepath.Join(dir, "a", "sub", "run")); string(got) != "run" {
		t.Errorf("%q %v", got, err)
	}
	r.want("GET", p, "", 200, `{"skills":{"a":{"description":"d"},"b":{"description":"dd"},"own":{"description":"d"}}}`)
	r.want("GET", wire.AgentCardPathNew, "", 200, `{"id":"skill-b","name":"b","description":"dd","tags":["skill"]}`)
	if got := r.ask("x", "").Status.Message.Text(); got != "a=# skill b=# b" {
		t.Error(got)
	}
}

// TestTrajectory: all six forms of a request, while a task runs and after it.
func TestTrajectory(t *testing.T) {
	b := newBucket(t)
	hold := make(chan struct{})
	r := serve(t, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		if err := t.TrajectoryFormat("f"); err != nil {
			return agent.Result{}, err
		}
		for i := range 3 {
			if err := t.Record(map[string]any{"i": i, "t": t.Text()}); err != nil {
				return agent.Result{}, err
			}
		}
		switch t.Text() {
		case "hold":
			select {
			case <-hold:
			case <-ctx.Done():
			}
		case "big":
			for range 5 {
				if err := t.Record(map[string]string{"x": strings.Repeat("x", 3<<20)}); err != nil {
					return agent.Result{}, err
				}
			}
		case "native":
			return agent.Result{Parts: []wire.Part{wire.TextPart("x")}, Trajectory: json.RawMessage(`{ "native": 1 }`)}, nil
		}
		return agent.Text("x"), nil
	}, agent.WithTrajectory(), agent.WithHTTPClient(b.Client()))
	const p = "/ext/trajectory"
	held, rerr := r.rpc("message/send", send("hold", "c", false))
	if rerr != nil {
		t.Fatal(rerr)
	}
	for range 200 {
		if _, out := r.do("POST", p, `{"task_id":"`+held.ID+`","after":3}`); strings.Contains(out, `"next":3`) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.want("POST", p, `{"task_id":"`+held.ID+`"}`, 404, "hasn't ended")
	r.want("POST", p, `{"task_id":"`+held.ID+`","after":1,"limit":1}`, 200, fmt.Sprintf(`{"context_id":"c","task_id":%q,"state":"running","format":"f","events":[{"i":1,"t":"hold"}],"next":2,"has_more":true}`, held.ID))
	next, rerr := r.rpc("message/send", send("native", "c", false))
	if rerr != nil {
		t.Fatal(rerr)
	}
	r.want("POST", p, `{"task_id":"`+next.ID+`","after":0}`, 200, `"state":"pending","events":[],"next":0,"has_more":false`)
	close(hold)
	r.until(next.ID)
	r.want("POST", p, `{"task_id":"`+next.ID+`"}`, 200, `{"trajectory":{"native":1}}`)
	r.want("POST", p, `{"context_id":"c"}`, 200, `{"trajectory":[{"i":0,"t":"hold"},{"i":1,"t":"hold"},{"i":2,"t":"hold"},{"i":0,"t":"native"},{"i":1,"t":"native"},{"i":2,"t":"native"}]}`)
	r.want("POST", p, `{"context_id":"c","after":2,"limit":2}`, 200, `"state":"completed","format":"f","events":[{"i":2,"t":"hold"},{"i":0,"t":"native"}],"next":4,"has_more":true}`)
	r.want("POST", p, `{"context_id":"c","after":6}`, 200, `"events":[],"next":6,"has_more":false}`)
	r.want("POST", p, `{"context_id":"c","objects":{"trajectory":`+b.write("/t", "application/json", 1000)+`}}`, 200, `{"objects":{"trajectory":{"size_bytes":`)
	r.want("POST", p, `{"task_id":"`+next.ID+`","objects":{"trajectory":`+b.write("/n", "application/json", 1000)+`}}`, 200, `"size_bytes":12,"sha256":"`)
	if b.objects["/n"] != `{"native":1} application/json` || !strings.HasPrefix(b.objects["/t"], `[{"i":0,"t":"hold"},`) {
		t.Errorf("%v", b.objects)
	}
	r.want("POST", p, `{"context_id":"c","objects":{"trajectory":`+b.write("/t", "application/json", 10)+`}}`, 413, `"transfer_too_large"`)
	for body, status := range map[string]int{
		`{"context_id":"none"}`: 404, `{"task_id":"none","after":0}`: 404, `{}`: 400, `{"context_id":"c","task_id":"x"}`: 400, `{"context_id":"c","limit":1}`: 400,
		`{"context_id":"c","after":7}`: 400, `{"context_id":"c","after":-1}`: 400, `{"context_id":"c","after":1.0}`: 400, `{"context_id":"c","after":0,"limit":1001}`: 400,
		`{"context_id":"c","objects":{"trajectory":` + b.write("/t", "text/plain", 1000) + `}}`: 400, `{"context_id":"c","objects":{}}`: 400,
	} {
		r.want("POST", p, body, status, "")
	}
	big := r.ask("big", "")
	if out := r.want("POST", p, `{"task_id":"`+big.ID+`","after":3}`, 200, `"next":4,"has_more":true`); len(out) < 3<<20 {
		t.Error("a page without its one event")
	}
	gone, rerr := r.rpc("message/send", send("hold", "", false))
	if rerr != nil {
		t.Fatal(rerr)
	}
	if gone = r.until(gone.ID); gone.Status.State != wire.TaskCompleted {
		t.Error(gone.Status)
	}
}

// TestSnapshots: contexts are saved and loaded by grants, changelogs uploaded and applied.
func TestSnapshots(t *testing.T) {
	b := newBucket(t)
	var uploads *agent.Uploads
	var applied []string
	r := serve(t, echo, agent.WithHTTPClient(b.Client()),
		agent.WithSnapshots(func(ctx context.Context, s *agent.Snapshot) error {
			switch s.ContextID {
			case "none":
				return agent.Refuse(404, "there is no such context")
			case "lazy":
				return nil
			case "half":
				return s.Trajectory.Write(ctx, strings.NewReader("talk"))
			}
			if s.Workspace != nil {
				if err := s.Workspace.Write(ctx, strings.NewReader("files")); err != nil {
					return err
				}
			}
			return s.Trajectory.Write(ctx, strings.NewReader("talk"))
		}, func(ctx context.Context, s *agent.Saved) (string, error) {
			got, err := s.Trajectory.Bytes(ctx, 100)
			if err != nil {
				return "", err
			}
			return "loaded-" + string(got) + s.TargetContextID, nil
		}),
		agent.WithChangelog(func(_ context.Context, to *agent.Uploads, roots []string) ([]string, error) {
			uploads = to
			return append(roots, "/app"), nil
		}, func(ctx context.Context, c *agent.Changes) (string, error) {
			for _, x := range c.Increments {
				var buf bytes.Buffer
				if err := x.Source.Read(ctx, func() (io.Writer, error) { buf.Reset(); return &buf, nil }); err != nil {
					return "", err
				}
				applied = append(applied, fmt.Sprint(x.Sequence, buf.String()))
			}
			return c.TargetContextID, nil
		}))
	const p, l = "/ext/snapshot", "/ext/snapshot/changelog"
	octet := "application/octet-stream"
	r.want("POST", p, `{"context_id":"c","objects":{"trajectory":`+b.write("/t", octet, 10)+`,"workspace":`+b.write("/w", octet, 10)+`}}`, 200, `"workspace":{"size_bytes":5`)
	if b.objects["/t"] != "talk "+octet || b.objects["/w"] != "files "+octet {
		t.Errorf("%v", b.objects)
	}
	r.want("POST", p, `{"context_id":"none","objects":{"trajectory":`+b.write("/t", octet, 10)+`}}`, 404, "no such context")
	r.want("POST", p, `{"context_id":"lazy","objects":{"trajectory":`+b.write("/t", octet, 10)+`}}`, 500, "Correlation ID: ")
	r.want("POST", p, `{"context_id":"half","objects":{"trajectory":`+b.write("/t", octet, 10)+`,"workspace":`+b.write("/w", octet, 10)+`}}`, 500, "Correlation ID: ")
	b.objects["/in"] = "x"
	r.want("PUT", p, `{"objects":{"trajectory":`+b.read("/in")+`},"target_context_id":"-t"}`, 200, `{"context_id":"loaded-x-t"}`)
	wrong := strings.Replace(b.read("/in"), `"max_bytes":100`, `"max_bytes":100,"sha256":"`+strings.Repeat("0", 64)+`"`, 1)
	r.want("PUT", p, `{"objects":{"trajectory":`+wrong+`}}`, 422, `"integrity_mismatch"`)
	ns := fmt.Sprintf(`{"root_path":"log","expires_at":"2100-01-01T00:00:00Z","max_objects":2,"max_object_bytes":5,"max_total_bytes":8,"write":{"kind":"http-post-policy","url":"%s/","fields":{},"path_field":"key","file_field":"file"}}`, b.URL)
	r.want("POST", l, `{"write_namespace":`+ns+`,"roots":["/r"]}`, 200, `{"roots":["/r","/app"]}`)
	r.want("POST", l, `{"write_namespace":`+ns+`,"roots":[1]}`, 400, "roots")
	if err := uploads.Upload(t.Context(), 42, ".tar", strings.NewReader("abc")); err != nil || b.objects["/log/000042.tar"] != "abc" {
		t.Errorf("%v %v", err, b.objects)
	}
	if err := uploads.Upload(t.Context(), 43, "", strings.NewReader("123456")); err == nil {
		t.Error("more than the grant allows was uploaded")
	}
	inc := func(n int) string { return fmt.Sprintf(`{"sequence":%d,"object":%s}`, n, b.read("/in")) }
	r.want("PUT", l, `{"increments":[`+inc(0)+`,`+inc(7)+`],"resume_conversation":true,"target_context_id":"k"}`, 200, `{"context_id":"k","count":2}`)
	if fmt.Sprint(applied) != "[0x 7x]" {
		t.Error(applied)
	}
	r.want("PUT", l, `{"increments":[`+inc(-1)+`]}`, 400, "sequence")
	r.want("PUT", l, `{"resume_conversation":"yes"}`, 400, "increments: it is missing; resume_conversation: want true or false")
}

// TestProbe: the probe tells what the agent says, and a declaration of install is on the card.
func TestProbe(t *testing.T) {
	at := agent.Attribution{}
	r := serve(t, echo, agent.WithAttributionProbe(func(context.Context) (agent.Attribution, error) { return at, nil }), agent.WithInstall(map[string]any{"commands": []string{"x"}}))
	const p = "/ext/attribution-probe"
	r.want("POST", p, "", 200, `{"last_seen_attribution":{}}`)
	at = agent.Attribution{Fields: map[string]string{"run": "1"}, At: time.Unix(1, 0)}
	r.want("POST", p, "{}", 200, `{"last_seen_at_utc":"1970-01-01T00:00:01.000000+00:00","last_seen_attribution":{"run":"1"}}`)
	r.want("POST", p, `{"x":1}`, 400, `"x"`)
	r.want("GET", wire.AgentCardPath, "", 200, `{"uri":"urn:agentenv:install/v1","description":"How the agent is installed.","params":{"commands":["x"]}`)
}

// TestStagedGrant: a grant for what the agent stages itself is used on the loopback, whatever its public address.
func TestStagedGrant(t *testing.T) {
	r := serve(t, echo, agent.WithSkills(t.TempDir(), nil))
	id := strings.Repeat("i", 32)
	r.want("PUT", "/ext/staging/"+id+"/s.md", "# staged", 201, "")
	body := fmt.Sprintf(`{"name":"a","description":"d","skill_bundle":{"max_total_bytes":100,"files":[{"path":"SKILL.md","object":{"media_type":"text/plain","max_bytes":100,"read":{"kind":"http-get","url":"https://nowhere.invalid/x","expires_at":"2100-01-01T00:00:00Z","headers":{%q:"/ext/staging/%s/s.md"}}}}]}}`,
		transfer.StagingHeader, id)
	r.want("POST", "/ext/skill-config", body, 200, `{"name":"a"}`)
}
