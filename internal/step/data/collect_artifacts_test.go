package data

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
)

func collect(fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return `{"id": "get", "type": "collect_artifacts", "sandbox_name": "box"` + fields + `}`
}

// world is a bench whose sandbox holds files, by path; a text that begins with "->" is a link, and one that ends with "/" in its name a folder.
func world(t *testing.T, files map[string]string) *steptest.Rig {
	r := steptest.New(t, fake.Options{})
	r.Box()
	box, err := r.Deploy.Box(t.Context(), steptest.Run, "box")
	if err != nil {
		t.Fatal(err)
	}
	var put []guest.PutFile
	for p, text := range files {
		p = strings.TrimPrefix(p, "/")
		target, link := strings.CutPrefix(text, "->")
		switch {
		case strings.HasSuffix(p, "/"):
			put = append(put, guest.PutFile{Path: strings.TrimSuffix(p, "/"), Mode: 0o755})
		case link:
			put = append(put, guest.PutFile{Path: p, Link: target})
		case strings.HasPrefix(text, "#!"):
			put = append(put, guest.PutBytes(p, 0o755, []byte(text)))
		default:
			put = append(put, guest.PutBytes(p, 0o640, []byte(text)))
		}
	}
	slices.SortFunc(put, func(a, b guest.PutFile) int { return strings.Compare(a.Path, b.Path) })
	if err := guest.Put(t.Context(), box, "/", put); err != nil {
		t.Fatal(err)
	}
	return r
}

// kept is what a version of the collected universe holds, one line per entry.
func kept(t *testing.T, r *steptest.Rig, id string, version int) string {
	t.Helper()
	d, err := r.Store.Get(t.Context(), store.Artifact, id, version)
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		switch {
		case f.Link != "":
			out = append(out, f.Path+" -> "+f.Link)
		case f.Folder:
			out = append(out, f.Path+"/")
		default:
			b, _, err := store.OpenVerified(t.Context(), r.Store, f.Digest)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(b)
			if err != nil || int64(len(text)) != f.Size {
				t.Errorf("%s: %d of %d bytes, %v", f.Path, len(text), f.Size, err)
			}
			_ = b.Close()
			out = append(out, fmt.Sprintf("%s %03o %s", f.Path, f.Mode, text))
		}
	}
	return strings.Join(out, "\n")
}

var tree = map[string]string{
	"/app/artifact/a.txt":          "a",
	"/app/artifact/bin/run.sh":     "#!run",
	"/app/artifact/bin/here":       "->run.sh",
	"/app/artifact/bin/out":        "->/etc/host",
	"/app/artifact/bin/up":         "->../../../secret dir/x",
	"/app/artifact/nowhere":        "->/no/such/file",
	"/app/artifact/cache/deep/big": "big",
	"/app/artifact/empty/":         "",
	"/etc/host":                    "host",
	"/secret dir/x":                "x",
}

const whole = "a.txt 640 a\nbin/here -> run.sh\nbin/out 640 host\nbin/run.sh 755 #!run\nbin/up 640 x\ncache/deep/big 640 big\nempty/"

func TestCollect(t *testing.T) {
	for _, tt := range []struct {
		name, fields, want, log string
	}{
		{"everything", ``, whole, `msg="left out: the link leads out of what is collected, and to no file" path=/app/artifact/nowhere`},
		{"another base", `"base_path": "app/artifact/bin/"`, "here -> run.sh\nout 640 host\nrun.sh 755 #!run\nup 640 x", ""},
		{"a base that is a file", `"base_path": "/app/artifact/a.txt"`, "a.txt 640 a", ""},
		{"named files", `"artifact_paths": ["a.txt", "./bin/../a.txt", "bin/run.sh", "nosuch", "/etc/host"]`, "a.txt 640 a\nbin/run.sh 755 #!run\netc/host 640 host", `msg="left out: it does not exist" path=/app/artifact/nosuch`},
		{"a named folder, and a file of it", `"artifact_paths": ["cache", "cache/deep/big", "bin/out"]`, "bin/out 640 host\ncache/deep/big 640 big", ""},
		{"the base by name", `"artifact_paths": ["."], "exclude_basenames": ["cache", "a.txt", "here", "up", "out", "nowhere"]`, "bin/run.sh 755 #!run\nempty/", ""},
		{"left out", `"exclude_basenames": ["bin", "big", "nowhere"]`, "a.txt 640 a\ncache/deep/\nempty/", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := world(t, tree)
			r.Must(NewCollectArtifacts(r.Store, r.Deploy), collect(tt.fields))
			if got := kept(t, r, steptest.Run, 1); got != tt.want {
				t.Errorf("kept\n%s\nwant\n%s", got, tt.want)
			}
			if !strings.Contains(r.Log(), tt.log) {
				t.Error(r.Log())
			}
		})
	}
}

func TestCollectRecords(t *testing.T) {
	r := world(t, map[string]string{"/out/a b.txt": "12", "/out/l": "->a b.txt"})
	e := NewCollectArtifacts(r.Store, r.Deploy)
	r.Must(e, collect(`"base_path": "/out", "universe_id_suffix": "-out"`))
	id := steptest.Run + "-out"
	file, err := r.Store.Get(t.Context(), store.Artifact, id, 0)
	if err != nil || file.Type != artifact.FileUniverse || file.Version != 1 {
		t.Fatalf("%+v, %v", file, err)
	}
	var all map[string]any
	got := func() json.RawMessage {
		var raw json.RawMessage
		if ok, err := r.View().Get(step.Child(CollectedPath, "get"), &raw); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return raw
	}
	if err := json.Unmarshal(got(), &all); err != nil {
		t.Fatal(err)
	}
	own := all["artifacts"].(map[string]any)["a b.txt"].(map[string]any)["id"].(string)
	r.Equal("record", got(), json.RawMessage(`{"artifacts":{"a b.txt":{"id":"`+own+`","version":1,"size":2}},"file_artifact_universe":{"id":"`+id+
		`","version":1},"sandbox_name":"box","base_path":"/out","file_count":2,"total_bytes":2}`))
	if d, err := r.Store.Get(t.Context(), store.Artifact, own, 1); err != nil || d.Type != artifact.File {
		t.Errorf("%+v, %v", d, err)
	}
	var pin artifact.Pin
	if ok, err := r.View().Get(universePath, &pin); !ok || err != nil || pin != (artifact.Pin{ID: id, Version: 1}) {
		t.Errorf("%+v %v", pin, err)
	}

	// Again under the same id: the next version, and the first one stays.
	r.Fake.Machines()[0].Files.WriteFile("/out/a b.txt", []byte("345"), 0o600)
	r.Must(e, collect(`"base_path": "/out", "universe_id_suffix": "-out"`))
	if got := kept(t, r, id, 2); got != "a b.txt 600 345\nl -> a b.txt" {
		t.Error(got)
	}
	if got := kept(t, r, id, 1); got != "a b.txt 640 12\nl -> a b.txt" {
		t.Error(got)
	}
}

// Nothing at all is fine where nobody named anything, and a failure where somebody did.
func TestCollectNothing(t *testing.T) {
	r := world(t, nil)
	e := NewCollectArtifacts(r.Store, r.Deploy)
	r.Must(e, collect(``))
	var rec collected
	if ok, err := r.View().Get(step.Child(CollectedPath, "get"), &rec); !ok || err != nil || rec.Universe != nil {
		t.Errorf("%+v %v", rec, err)
	}
	if _, err := r.Store.Get(t.Context(), store.Artifact, steptest.Run, 0); err == nil {
		t.Error("an empty universe was stored")
	}
	err := r.Do(e, collect(`"artifact_paths": ["a", "/b"]`))
	if got := steptest.ErrorType(err); got != "NothingCollected" ||
		err.Error() != "none of the named files could be collected, and there is no folder /app/artifact: '/app/artifact/a', '/b'" {
		t.Errorf("%s %v", got, err)
	}
}

// Where the paths come from: the manifest before the seed, the seed before the list.
func TestCollectSources(t *testing.T) {
	files := map[string]string{"/app/artifact/list": "l", "/app/artifact/seed": "s", "/app/artifact/manifest": "m", "/app/artifact/script": "j"}
	set := func(path string, v any) step.Op {
		b, _ := json.Marshal(v)
		return step.Op{Op: "set", Path: path, Value: b}
	}
	reply := func(structured string) step.Op {
		return step.Op{Op: "append", Path: "prompt_responses", Value: json.RawMessage(`{"step_id":"ask","structured_output":` + structured + `}`)}
	}
	const list = `"artifact_paths": ["list"]`
	for _, tt := range []struct {
		name, fields string
		seed         map[string]string
		op           step.Op
		want, fails  string
	}{
		{"list", list, nil, reply("null"), "list 640 l", ""},
		{"seed", list, map[string]string{"expected_artifacts": " seed ,, list "}, reply("null"), "list 640 l\nseed 640 s", ""},
		{"seed of another key", list + `, "artifacts_key": "mine"`, map[string]string{"expected_artifacts": "seed"}, reply("null"), "list 640 l", ""},
		{"manifest", list + `, "manifest_step_id": "ask"`, map[string]string{"expected_artifacts": "seed"}, reply(`{"expected_artifacts":["manifest"]}`), "manifest 640 m", ""},
		{"manifest of tables", `"manifest_step_id": "ask", "artifacts_key": "mine"`, nil, reply(`{"mine":[{"path":"manifest","why":"x"}]}`), "manifest 640 m", ""},
		{"manifest of a script", `"manifest_step_id": "sum"`, nil, set("metadata/script_results/sum", map[string]any{"expected_artifacts": []string{"script"}}), "script 640 j", ""},
		{"manifest that lists nothing", list + `, "manifest_step_id": "ask"`, nil, reply(`{"expected_artifacts":[]}`), "list 640 l", ""},
		{"manifest without the key", list + `, "manifest_step_id": "ask"`, nil, reply(`{"other":1}`), "list 640 l", ""},
		{"no manifest", list + `, "manifest_step_id": "nosuch"`, nil, reply(`null`), "", "NotFoundError: step 'nosuch' has left no output that could list files"},
		{"manifest that is no list", `"manifest_step_id": "ask"`, nil, reply(`{"expected_artifacts":"x"}`), "", "ValueError: expected_artifacts of step 'ask' is no list of paths"},
		{"manifest with no path", `"manifest_step_id": "ask"`, nil, reply(`{"expected_artifacts":["manifest", 3]}`), "", "ValueError: expected_artifacts of step 'ask' has no path at index 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := world(t, files)
			r.History.Commit(1000, []step.Op{tt.op})
			d := r.Doc(collect(tt.fields))
			c := &step.Call{Run: steptest.Run, Step: "get", Doc: d, State: r.View(), Out: &step.Diff{}, Seed: tt.seed, Log: discard}
			err := NewCollectArtifacts(r.Store, r.Deploy).Run(t.Context(), c)
			switch {
			case tt.fails != "":
				if err == nil || steptest.ErrorType(err)+": "+err.Error() != tt.fails {
					t.Errorf("%v, want %s", err, tt.fails)
				}
			case err != nil:
				t.Error(err)
			default:
				if got := kept(t, r, steptest.Run, 1); got != tt.want {
					t.Errorf("kept\n%s\nwant\n%s", got, tt.want)
				}
			}
		})
	}
}

func TestCollectPreflight(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	e := NewCollectArtifacts(r.Store, r.Deploy)
	const only = "files can only be collected from sandboxes and containers by this version of agent-env; name the source in sandbox_name"
	for text, want := range map[string]string{
		collect(``): "",
		collect(`"universe_id_suffix": "-first"`):                      "",
		collect(`"universe_id_suffix": "__x"`):                         "universe_id_suffix: can't end an id: __ marks what is derived from an id; use letters, digits and -",
		collect(`"universe_id_suffix": "/../x"`):                       "universe_id_suffix: can't end an id: '@local/x/../x' has a path segment that is . or ..; use letters, digits and -",
		collect(`"container_name": "c"`):                               "",
		`{"id": "get", "type": "collect_artifacts"}`:                   "",
		`{"id": "get", "type": "collect_artifacts", "env_id": "e"}`:    "env_id: " + only,
		`{"id": "get", "type": "collect_artifacts", "agent_name":"a"}`: "",
	} {
		if got := steptest.Texts(e.Preflight(t.Context(), r.Doc(text), step.Plan{})); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

// odd is a sandbox that misbehaves.
type odd struct {
	guest.Box
	tree func(path string) (io.ReadCloser, error)
	stat func(path string) (fs.FileInfo, error)
}

func (o odd) Tree(ctx context.Context, p string) (io.ReadCloser, error) {
	if o.tree != nil {
		return o.tree(p)
	}
	return o.Box.Tree(ctx, p)
}

func (o odd) Stat(ctx context.Context, p string) (fs.FileInfo, error) {
	if o.stat != nil {
		return o.stat(p)
	}
	return o.Box.Stat(ctx, p)
}

func (o odd) open(context.Context, string, string) (guest.Box, error) { return o, nil }

// boxes is a step.Boxes of one function.
type boxes func(context.Context, string, string) (guest.Box, error)

func (b boxes) Box(ctx context.Context, run, name string) (guest.Box, error) {
	return b(ctx, run, name)
}

func TestCollectFailures(t *testing.T) {
	r := world(t, map[string]string{"/app/artifact/a": "a"})
	box, err := r.Deploy.Box(t.Context(), steptest.Run, "box")
	if err != nil {
		t.Fatal(err)
	}
	grows := 0
	for _, tt := range []struct {
		name string
		box  odd
		want string
	}{
		{
			"unreadable",
			odd{tree: func(p string) (io.ReadCloser, error) {
				return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrPermission}
			}},
			"ReadError: '/app/artifact' exists but can't be read: open /app/artifact: permission denied",
		},
		{"breaks off", odd{tree: func(p string) (io.ReadCloser, error) {
			whole, err := box.Tree(t.Context(), p)
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(whole, 1100), broken{}), whole}, nil
		}}, "ReadError: '/app/artifact' exists but can't be read: the disk is broken"},
		{"gone", odd{tree: func(string) (io.ReadCloser, error) { return nil, guest.ErrGone }}, "infra: untyped: the sandbox is gone"},
		{"changes for ever", odd{stat: func(p string) (fs.FileInfo, error) {
			grows++
			r.Fake.Machines()[0].Files.WriteFile(p, make([]byte, grows+1), 0o644)
			return box.Stat(t.Context(), p)
		}}, "ReadError: '/app/artifact/a' changes while it is copied; collect it when nothing writes to it any more"},
	} {
		tt.box.Box = box
		err := r.Do(NewCollectArtifacts(r.Store, boxes(tt.box.open)), collect(``))
		if got := steptest.ErrorType(err) + ": " + fmt.Sprint(err); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	// What has grown once meanwhile is kept as it is in the end.
	once := false
	late := odd{Box: box, stat: func(p string) (fs.FileInfo, error) {
		if !once {
			once = true
			r.Fake.Machines()[0].Files.WriteFile(p, []byte("all of it"), 0o644)
		}
		return box.Stat(t.Context(), p)
	}}
	r.Must(NewCollectArtifacts(r.Store, boxes(late.open)), collect(``))
	if got := kept(t, r, steptest.Run, 1); got != "a 644 all of it" {
		t.Error(got)
	}
	err = r.Do(NewCollectArtifacts(r.Store, r.Deploy), strings.Replace(collect(``), `"box"`, `"nosuch"`, 1))
	if got := steptest.ErrorType(err); got != "SandboxError" {
		t.Errorf("no sandbox: %s %v", got, err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("the disk is broken") }

// Two steps that store under one id at the same time both succeed.
func TestCollectRaces(t *testing.T) {
	r := world(t, map[string]string{"/app/artifact/a": "a"})
	e := NewCollectArtifacts(r.Store, r.Deploy)
	d := r.Doc(collect(``))
	const n = 6
	errs := make(chan error, n)
	for range n {
		go func() {
			errs <- e.Run(t.Context(), &step.Call{Run: steptest.Run, Step: "get", Doc: d, State: r.View(), Out: &step.Diff{}, Log: discard})
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := kept(t, r, steptest.Run, n); got != "a 640 a" {
		t.Error(got)
	}
}

func TestCollectLimits(t *testing.T) {
	r := world(t, map[string]string{"/app/artifact/a": "12345", "/app/artifact/b": "12345"})
	box, err := r.Deploy.Box(t.Context(), steptest.Run, "box")
	if err != nil {
		t.Fatal(err)
	}
	stage, err := r.Store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := newCollector(box, stage, nil, func(string, ...any) {})
	k.max = 9
	err = k.collect(t.Context(), wanted{from: "/app/artifact"})
	if got := steptest.ErrorType(err) + ": " + fmt.Sprint(err); got != "LimitError: more than 9 bytes in all, with '/app/artifact/b'" {
		t.Error(got)
	}
	if err := stage.Discard(); err != nil {
		t.Error(err)
	}
}
