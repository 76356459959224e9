package data

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/step/validate"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/computer/app"
	sdkenv "agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// alarms is an app that keeps data by hooks. It refuses what holds "poison".
type alarms struct {
	mu   sync.Mutex
	held []string
	adds int
	args []string // of exports
}

func (a *alarms) app() app.App {
	return app.App{
		Add: func(ctx context.Context, parts []*app.Part) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.adds++
			for _, p := range parts {
				if p.Kind != wire.KindData {
					return errors.New("alarms are data")
				}
				var d struct{ Alarms []string }
				if err := json.Unmarshal(p.Data, &d); err != nil {
					return err
				}
				a.held = append(a.held, d.Alarms...)
				if slices.Contains(d.Alarms, "poison") {
					return errors.New("no such alarm")
				}
			}
			return nil
		},
		Get: func(ctx context.Context, _ *sdkenv.Namespace) ([]wire.Part, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.args = append(a.args, string(sdkenv.CallFrom(ctx).Arguments))
			if len(a.held) == 0 {
				return nil, nil
			}
			p, err := wire.DataPart(map[string]any{"alarms": a.held})
			return []wire.Part{p}, err
		},
		Reset: func(context.Context) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.held = nil
			return nil
		},
	}
}

func (a *alarms) holds() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.held, " ")
}

// desk is a bench with a deployed computer called desk and three apps: notes keeps ~/Notes, clock has hooks, calc keeps nothing.
func desk(t *testing.T, change ...func(*steptest.Computer)) (*steptest.Rig, *steptest.Computer, *alarms) {
	t.Helper()
	clock := &alarms{}
	home, err := os.MkdirTemp("", "desk") //nolint:usetesting // its sockets' paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.MkdirAll(filepath.Join(home, "Notes"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, home, "Notes/welcome.txt", "welcome")
	c := &steptest.Computer{Home: home, Apps: map[string]app.App{"notes": {Paths: []string{"Notes"}}, "clock": clock.app(), "calc": {}}}
	for _, f := range change {
		f(c)
	}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"agent-env": c.Program()}})
	var apps []any
	for _, name := range []string{"notes", "clock", "calc"} {
		r.PutFolder("@local/"+name, env.ComputerApp, name, nil, steptest.File{Path: "app.toml"})
		apps = append(apps, steptest.EnvPin("@local/"+name, env.ComputerApp))
	}
	r.PutFolder("@local/desk", env.Computer, "desk", map[string]any{"apps": apps, "data_paths": []any{"Documents"}})
	return r, c, clock
}

func deployed(t *testing.T, r *steptest.Rig) *deploy.Env {
	t.Helper()
	return r.DeployEnv("@local/desk", "up")
}

func write(t *testing.T, home, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// packed is a packed tree of files.
func packed(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func loader(r *steptest.Rig) *LoadArtifact {
	return NewLoadArtifact(r.Store, r.Deploy, r.Envs, r.Agents, NewDownloads(false))
}

const loadDesk = `{"id": "l", "type": "load_artifact", "env_id": "@local/desk", "artifact_id": "@local/world"}`

// held is what the home has of the paths, "name=text".
func held(t *testing.T, home string, names ...string) string {
	t.Helper()
	var out []string
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(home, n))
		if err == nil {
			out = append(out, n+"="+string(b))
		}
	}
	return strings.Join(out, " ")
}

// stored is what a universe holds: by environment, the name of its file and what it holds, of a tree each file.
func stored(t *testing.T, r *steptest.Rig, id string) map[string]string {
	t.Helper()
	d, err := envstore.ReadData(t.Context(), r.Store, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range d.Payloads {
		in, _, err := store.OpenVerified(t.Context(), r.Store, p.File.Digest)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if z, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err == nil {
			text = ""
			for _, f := range z.File {
				o, err := f.Open()
				if err != nil {
					t.Fatal(err)
				}
				c, err := io.ReadAll(o)
				o.Close()
				if err != nil || f.Mode() != 0o644 || f.Modified.UTC().Year() != 1980 {
					t.Errorf("%s: %v %v %v", f.Name, err, f.Mode(), f.Modified)
				}
				text += f.Name + "=" + string(c) + ";"
			}
		}
		out[p.Environment] = filepath.Base(p.File.Path) + ": " + text
	}
	return out
}

func snapshotDesk(more string) string {
	return `{"id": "s", "type": "snapshot_computer_env", "env_id": "@local/desk", "snapshot_id": "@local/after"` + more + `}`
}

// Rows A34, A36, A37, A41, A42: data go by name, the computer's first; what has no place here is left out and told; one call an environment.
func TestA34LoadsGoByName(t *testing.T) {
	r, c, clock := desk(t)
	deployed(t, r)
	r.PutTree("@local/world",
		steptest.File{Path: "clock/clock.json", Text: `{"alarms": ["07:00", "08:00"]}`},
		steptest.File{Path: "desk/desk.tree.zip", Text: packed(t, "Documents/a.txt", "a", "Notes/one.txt", "of the computer")},
		steptest.File{Path: "notes/notes.tree.zip", Text: packed(t, "Notes/one.txt", "of the app", "Notes/two.txt", "two")},
		steptest.File{Path: "printer/data.json", Text: "{}"})
	r.Must(loader(r), loadDesk)
	if got := held(t, c.Home, "Documents/a.txt", "Notes/one.txt", "Notes/two.txt", "Notes/welcome.txt"); got != "Documents/a.txt=a Notes/one.txt=of the app Notes/two.txt=two Notes/welcome.txt=welcome" {
		t.Error(got)
	}
	if clock.holds() != "07:00 08:00" || clock.adds != 1 {
		t.Errorf("%s, by %d calls", clock.holds(), clock.adds)
	}
	if log := r.Log(); !strings.Contains(log, "WARN") || !strings.Contains(log, "printer") {
		t.Error(log)
	}
	r.Equal("recorded", r.View().List(step.LoadedUniversesPath), []step.LoadedEnvironment{{
		ID: "@local/world", Version: 1, Type: "environment_universe", Env: "@local/desk", EnvStep: "up", Environments: []string{"desk", "notes", "clock"}, Skipped: []string{"printer"},
	}})
}

// Row A35: what can't be loaded is told before anything is.
func TestA35NothingIsSentOfABadLoad(t *testing.T) {
	r, c, clock := desk(t)
	deployed(t, r)
	r.PutTree("@local/world", steptest.File{Path: "desk/hello.txt", Text: "hello"}, steptest.File{Path: "calc/calc.json", Text: "{}"}, steptest.File{Path: "clock/clock.json", Text: "{}"},
		steptest.File{Path: "notes/notes.tree.zip", Text: packed(t, "../x", "x")})
	err := r.Do(loader(r), loadDesk)
	for _, want := range []string{"nothing was loaded: environment 'calc' takes no data", "'notes.tree.zip' of 'notes': '../x' in it can't be a place in a home"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := held(t, c.Home, "hello.txt"); got != "" || clock.adds != 0 {
		t.Error(got, clock.adds)
	}
}

// Rows A37, A22: the first that fails ends the load and is named; its server has reset it.
func TestA37TheFirstFailureEndsALoad(t *testing.T) {
	r, c, clock := desk(t)
	deployed(t, r)
	r.PutTree("@local/world",
		steptest.File{Path: "desk/hello.txt", Text: "hello"}, steptest.File{Path: "clock/clock.json", Text: `{"alarms": ["poison"]}`},
		steptest.File{Path: "notes/notes.tree.zip", Text: packed(t, "Elsewhere/x", "x")})
	err := r.Do(loader(r), loadDesk)
	if steptest.ErrorType(err) != "LoadError" || !strings.Contains(err.Error(), "into 'notes': data/add failed") {
		t.Error(err)
	}
	if got := held(t, c.Home, "hello.txt", "Elsewhere/x", "Notes/welcome.txt"); got != "hello.txt=hello Notes/welcome.txt=welcome" || clock.adds != 0 {
		t.Error(got, clock.adds)
	}
}

// Rows A38, A39, A40, A28: one universe of the computer's files and each app's export; file_paths reach the computer alone, without what apps own; what
// holds nothing is left out.
func TestA38ASnapshotIsOneUniverse(t *testing.T) {
	r, c, clock := desk(t)
	deployed(t, r)
	write(t, c.Home, "Documents/a.txt", "a")
	write(t, c.Home, "loose.txt", "l")
	e := NewSnapshotComputerEnv(r.Store, r.Envs)
	r.Must(e, snapshotDesk(`, "file_paths": ["loose.txt", "Notes", "Documents"], "data_get_params": {"clock": {"zone": "UTC"}}`))
	want := map[string]string{"desk": "desk.tree.zip: Documents/a.txt=a;loose.txt=l;", "notes": "notes.tree.zip: Notes/welcome.txt=welcome;"}
	if got := stored(t, r, "@local/after"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error(got)
	}
	if got := strings.Join(clock.args, " "); got != `{"zone":"UTC"}` {
		t.Errorf("the clock got %s", got)
	}
	var rec snapshot
	if _, err := r.View().Get(step.Child(SnapshotsPath, "s"), &rec); err != nil || fmt.Sprint(rec.Environments) != "[desk notes]" {
		t.Errorf("%+v %v", rec, err)
	}
	clock.held = []string{"07:00"}
	r.Must(e, snapshotDesk(``)) // data_paths then
	want = map[string]string{"desk": "desk.tree.zip: Documents/a.txt=a;", "notes": want["notes"], "clock": `clock.json: {"alarms":["07:00"]}`}
	if got := stored(t, r, "@local/after"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error(got)
	}
	for more, say := range map[string]string{
		`, "file_paths": ["x"], "data_get_params": {"desk": {"file_paths": ["y"]}}`: "file_paths is there twice",
		`, "data_get_params": {"calc": {}}`:                                         "there are parameters for 'calc', and no environment of that name is exported",
	} {
		if err := r.Do(e, snapshotDesk(more)); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// Row A40: a snapshot in which everything is empty is refused.
func TestA40NothingButEmpty(t *testing.T) {
	r, c, _ := desk(t)
	deployed(t, r)
	if err := os.Remove(filepath.Join(c.Home, "Notes/welcome.txt")); err != nil {
		t.Fatal(err)
	}
	err := r.Do(NewSnapshotComputerEnv(r.Store, r.Envs), snapshotDesk(""))
	if steptest.ErrorType(err) != "SnapshotError" || !strings.Contains(err.Error(), "none of 'desk', 'notes', 'clock' holds anything") {
		t.Error(err)
	}
}

// A snapshot goes in again as it came out, and a reset of all leaves the computer's own files alone.
func TestA41SnapshotsAreLoadedAgain(t *testing.T) {
	r, c, clock := desk(t)
	v := deployed(t, r)
	write(t, c.Home, "Documents/a.txt", "a")
	write(t, c.Home, "Notes/mine.txt", "mine")
	clock.held = []string{"07:00"}
	r.Must(NewSnapshotComputerEnv(r.Store, r.Envs), snapshotDesk(""))
	if err := v.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := held(t, c.Home, "Documents/a.txt", "Notes/mine.txt", "Notes/welcome.txt"); got != "Documents/a.txt=a Notes/welcome.txt=welcome" || clock.holds() != "" {
		t.Error(got, clock.holds())
	}
	r.Must(loader(r), strings.ReplaceAll(loadDesk, "@local/world", "@local/after"))
	if got := held(t, c.Home, "Notes/mine.txt"); got != "Notes/mine.txt=mine" || clock.holds() != "07:00" {
		t.Error(got, clock.holds())
	}
	if err := v.Reset(t.Context(), "desk"); err == nil || !strings.Contains(err.Error(), "data/reset of 'desk' failed") {
		t.Errorf("the driver has no reset: %v", err)
	}
}

// What an app exports may be a path of its own, which is fetched through the driver: one file as it is, files of a tree packed.
func TestExportsOfAppsByPath(t *testing.T) {
	named := func(at, uri string) wire.Part {
		p := wire.Part{Kind: wire.KindFile, File: &wire.File{Name: "alarms.txt", MimeType: "text/plain", URI: uri}}
		if at != "" {
			p.Metadata = json.RawMessage(`{"` + wire.URNDataObjects + `": {"path": "` + at + `"}}`)
		}
		return p
	}
	exporting := func(parts ...wire.Part) app.App {
		return app.App{Get: func(context.Context, *sdkenv.Namespace) ([]wire.Part, error) { return parts, nil }}
	}
	r, _, _ := desk(t, func(c *steptest.Computer) {
		c.Apps["clock"] = exporting(named("", "/export/alarms.txt?zone=UTC"))
		c.Apps["calc"] = exporting(named("Sums/one", "export/one"), named("Sums/two", "/export/two"))
		c.Driver = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if rest, ok := strings.CutPrefix(r.URL.Path, "/svc/"); ok && strings.Contains(rest, "/export/") {
					_, _ = io.WriteString(w, rest+" "+r.URL.RawQuery)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	deployed(t, r)
	r.Must(NewSnapshotComputerEnv(r.Store, r.Envs), snapshotDesk(""))
	want := map[string]string{
		"notes": "notes.tree.zip: Notes/welcome.txt=welcome;", "clock": "alarms.txt: clock/export/alarms.txt zone=UTC",
		"calc": "calc.tree.zip: Sums/one=calc/export/one ;Sums/two=calc/export/two ;",
	}
	if got := stored(t, r, "@local/after"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error(got)
	}
}

// Rows A30, A31: a computer's own name is itself, also where an app has it too.
func TestA31AnAppAlone(t *testing.T) {
	r, c, _ := desk(t)
	v := r.DeployEnv("@local/notes", "alone")
	if got := fmt.Sprint(v.DataNames()); got != "[notes]" {
		t.Error(got)
	}
	r.PutTree("@local/world", steptest.File{Path: "notes/hello.txt", Text: "hello"})
	r.Must(loader(r), strings.ReplaceAll(loadDesk, "@local/desk", "@local/notes"))
	if got := held(t, c.Home, "hello.txt"); got != "hello.txt=hello" {
		t.Errorf("the name reaches the computer's files: %s", got)
	}
}

// Rows A27, A29, A32: the card that is recorded lists every app, at paths through the gateway and the driver, and an agent's shows none.
func TestA32TheRecordedCard(t *testing.T) {
	r, _, clock := desk(t)
	v := deployed(t, r)
	card, err := v.Gateway.Card(t.Context())
	if err != nil || len(card.Children) != 1 || len(card.Children[0].Children) != 3 {
		t.Fatalf("%+v %v", card, err)
	}
	apps := card.Children[0].Children
	if apps[1].Name != "clock" || apps[1].URL != "/svc/mcp-desk/svc/clock/agentenv" || apps[1].Serves("data/reset") != true || len(apps[2].Capabilities.Operations) != 0 {
		t.Errorf("%+v", apps)
	}
	clock.held = []string{"07:00"}
	ask := func(p access.Principal) (int, string) {
		w := httptest.NewRecorder()
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, apps[1].URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"data/get","params":{}}`))
		q.Header.Set("Content-Type", "application/json")
		v.Gateway.Door(p).ServeHTTP(w, q)
		return w.Code, w.Body.String()
	}
	if code, body := ask(access.Principal{Owner: true}); code != http.StatusOK || !strings.Contains(body, "07:00") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask(access.Principal{Role: "default"}); code == http.StatusOK {
		t.Errorf("an agent reads an app's data: %s", body)
	}
	w := httptest.NewRecorder()
	v.Gateway.Door(access.Principal{Role: "default"}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, wire.CardPath, nil))
	if strings.Contains(w.Body.String(), "/svc/") || strings.Contains(w.Body.String(), "data/get") {
		t.Error(w.Body.String())
	}
}

// Row A7: a computer whose app isn't served never stands, and nothing is left of it.
func TestA7AnAppThatIsNotServed(t *testing.T) {
	r, _, _ := desk(t, func(c *steptest.Computer) { delete(c.Apps, "clock") })
	stored, err := envstore.Read(t.Context(), r.Store, "@local/desk", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: "up", Attempt: 1, Env: stored, Wait: time.Second})
	if err == nil || !strings.Contains(err.Error(), "app:clock: ask the app for its card") {
		t.Errorf("%v", err)
	}
	if live := r.Deploy.Live(steptest.Run); len(live) != 0 {
		t.Errorf("%+v", live)
	}
}

// How a session is told what to bring up.
func TestSessionOfAComputer(t *testing.T) {
	r, c, _ := desk(t)
	r.PutFolder("@local/drv", env.ComputerDriver, "", map[string]any{"command": []any{"./drive", "-v"}, "environment_name": "drv"}, steptest.File{Path: "drive", Text: "#!/bin/sh\n", Mode: 0o755})
	r.PutFolder("@local/full", env.Computer, "full", map[string]any{
		"apps": []any{}, "driver": steptest.EnvPin("@local/drv", env.ComputerDriver), "display": map[string]any{"width": 800, "height": 600}, "skill": "skill",
		"settings": map[string]any{"queue_wait_s": 2}, "data_paths": []any{"Documents"},
	}, steptest.File{Path: "skill/SKILL.md", Text: "---\nname: full\ndescription: d\n---\n"})
	r.PutFolder("@local/pad", env.ComputerApp, "pad", map[string]any{"skill": "how"}, steptest.File{Path: "app.toml"}, steptest.File{Path: "how/SKILL.md", Text: "x"})
	c.Apps["pad"] = app.App{}
	r.DeployEnv("@local/pad", "alone")
	if got, want := strings.Join(c.Argv()[1:], " "), "--app pad=/app/apps/pad --app-skill pad=how"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	r.DeployEnv("@local/full", "up")
	want := "computer session --home /home/user --size 800x600 --max-size 1920x1200 --driver /app/driver/drive --driver -v --skill /app/computer/skill"
	if got := strings.Join(c.Argv()[1:], " "); got != want {
		t.Error(got)
	}
}

// Row A45: the check of a deployed computer asks each environment that exports for its export once; one that fails fails the gate.
func TestA45TheGateAsksEachAppOnce(t *testing.T) {
	broken := app.App{Get: func(context.Context, *sdkenv.Namespace) ([]wire.Part, error) {
		return nil, errors.New("no export today")
	}}
	for name, change := range map[string]func(*steptest.Computer){"sound": func(*steptest.Computer) {}, "broken": func(c *steptest.Computer) { c.Apps["calc"] = broken }} {
		t.Run(name, func(t *testing.T) {
			r, _, clock := desk(t, change)
			v := deployed(t, r)
			rows, err := validate.BootComputer(t.Context(), v, r.Store)
			if err != nil {
				t.Fatal(err)
			}
			bad := map[string]string{}
			for _, row := range rows {
				if row["result"] != true && row["skipped"] != true {
					bad[fmt.Sprint(row["environment_name"])] = fmt.Sprint(row["justification"])
				}
			}
			want := map[string]string{}
			if name == "broken" {
				want["calc"] = "data/get of 'calc' failed: "
			}
			if len(bad) != len(want) || !strings.HasPrefix(bad["calc"], want["calc"]) {
				t.Error(bad)
			}
			if len(clock.args) != 1 {
				t.Errorf("the clock was asked %d times", len(clock.args))
			}
			b, ok, err := envstore.Boot(t.Context(), r.Store, "@local/desk", 1)
			if err != nil || !ok || b.Passed != (name == "sound") || len(b.Rows) == 0 {
				t.Errorf("%+v %v %v", b, ok, err)
			}
			if _, err := validate.BootComputer(t.Context(), v, r.Store); err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// Row A44: the skills of a computer are its own and its apps', in that order; those without one are left out.
func TestA44SkillsOfAComputer(t *testing.T) {
	text := func(name string) fstest.MapFS {
		return fstest.MapFS{"SKILL.md": {Data: []byte("---\nname: " + name + "\ndescription: d\n---\n" + name)}}
	}
	r, _, _ := desk(t, func(c *steptest.Computer) {
		notes := c.Apps["notes"]
		notes.Skill = &app.Skill{Name: "notes", Description: "d", Folder: text("notes")}
		c.Apps["notes"] = notes
		c.Skill = &computer.Skill{Name: "desk", Description: "d", Folder: text("desk")}
	})
	v := deployed(t, r)
	got, err := v.Skills(t.Context())
	if err != nil || len(got) != 2 || got[0].Name != "desk" || got[1].Name != "notes" || got[1].Files[0].Path != "SKILL.md" {
		t.Errorf("%+v %v", got, err)
	}
}
