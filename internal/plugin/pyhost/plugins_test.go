package pyhost_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// game is a real environment server with what the plugins of testdata call. It stands below a path, as behind a door.
func game(t *testing.T) (url string, card any) {
	t.Helper()
	e := env.New("game", env.WithLookup(func(string) (string, bool) { return "", false }))
	var mu sync.Mutex
	keys, turn := map[string]string{}, 0
	type none struct{}
	type license struct {
		Keys map[string]string `json:"keys"`
	}
	status := func() (any, error) {
		missing := []string{}
		if keys["cd-key"] == "" {
			missing = append(missing, "cd-key")
		}
		installed := []string{}
		for k := range keys {
			installed = append(installed, k)
		}
		return map[string]any{"missing": missing, "installed": installed}, nil
	}
	env.AddExtension(e, "urn:arena:license/v1", "get", func(context.Context, none) (any, error) { mu.Lock(); defer mu.Unlock(); return status() }, env.Op(), env.Verb("GET"))
	env.AddExtension(e, "urn:arena:license/v1", "add", func(_ context.Context, in license) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if in.Keys["cd-key"] != "S3CRET" {
			return nil, env.Fail("bad_key", "the key doesn't fit")
		}
		keys["cd-key"] = in.Keys["cd-key"]
		return status()
	}, env.Op())
	type open struct {
		Settings map[string]any `json:"settings"`
	}
	type lobby struct {
		ID *string `json:"lobby_id"`
	}
	env.AddExtension(e, "urn:arena:lobby/v1", "open", func(_ context.Context, in open) (any, error) {
		return map[string]any{"lobby_id": "l-1", "settings": in.Settings}, nil
	}, env.Op())
	env.AddExtension(e, "urn:arena:lobby/v1", "finish", func(_ context.Context, in lobby) (any, error) {
		if in.ID == nil || *in.ID != "l-1" {
			return nil, env.Fail("no_match", "no lobby is open").WithStatus(409)
		}
		return map[string]any{"status": "finished"}, nil
	}, env.Op())
	type newGame struct {
		Seed   int      `json:"seed"`
		Turns  int      `json:"turns"`
		Labels []string `json:"labels"`
	}
	env.AddExtension(e, "urn:civ:new-game/v1", "civ_new_game", func(_ context.Context, in newGame) (any, error) { return map[string]any{"seats": in.Labels}, nil })
	type view struct {
		View string `json:"view"`
	}
	env.AddExtension(e, "urn:civ:recording/v1", "civ_recording", func(_ context.Context, in view) (any, error) {
		return map[string]any{"files": []any{map[string]string{"name": "game.mp4", "content_type": "video/mp4", "base64": base64.StdEncoding.EncodeToString([]byte(in.View))}}}, nil
	})
	type match struct {
		Map     string `json:"map"`
		Race    string `json:"race"`
		License string `json:"license"`
	}
	env.AddExtension(e, "urn:rts:new-game/v1", "rts_new_game", func(_ context.Context, in match) (any, error) {
		if in.Map == "void" {
			return nil, env.Fail("no_map", "there is no map void")
		}
		return map[string]any{"setup": in.License}, nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		turn++
		p, err := wire.DataPart(map[string]any{"turn": turn, "game_over": turn >= 3})
		return []wire.Part{p}, err
	})
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.StripPrefix("/c/door-secret", guarded(h)))
	t.Cleanup(func() { srv.Close(); _ = e.Close(context.Background()) })
	url = srv.URL + "/c/door-secret"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+wire.CardPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Door", "open")
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(b, &card) != nil {
		t.Fatalf("card: %s, %v", b, err)
	}
	return url, card
}

// guarded asks for the header that env.connect tells of.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Door") != "open" {
			http.Error(w, "the door is shut", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// shelf is a store of artifacts and objects as host calls see it.
type shelf struct {
	mu    sync.Mutex
	dir   string
	items map[string]stored
}

type stored struct {
	kind, typ string
	version   int
	body      map[string]any
	content   []byte
}

type put struct {
	Call, Kind, ID, Type string
	Body                 map[string]any
	Files                []struct{ Path, File string }
}

func (s *shelf) put(raw json.RawMessage) (any, error) {
	var p put
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	var content []byte
	for _, f := range p.Files {
		b, err := os.ReadFile(f.File)
		if err != nil {
			return nil, err
		}
		content = b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.items[p.ID].version + 1
	s.items[p.ID] = stored{p.Kind, p.Type, v, p.Body, content}
	return map[string]any{"id": p.ID, "version": v}, nil
}

func (s *shelf) get(raw json.RawMessage) (any, error) {
	var p struct {
		ID    string
		Files bool
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[p.ID]
	if !ok {
		return nil, fmt.Errorf("no artifact %s", p.ID)
	}
	out := map[string]any{"id": p.ID, "version": it.version, "type": it.typ, "body": it.body}
	if p.Files {
		file, err := s.file(it.content)
		if err != nil {
			return nil, err
		}
		out["files"] = []any{map[string]string{"path": "content", "file": file}}
	}
	return out, nil
}

func (s *shelf) list(json.RawMessage) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for id, it := range s.items {
		if it.kind == "artifact" {
			items = append(items, map[string]any{"id": id, "version": it.version, "type": it.typ})
		}
	}
	return map[string]any{"items": items}, nil
}

func (s *shelf) file(b []byte) (string, error) {
	f, err := os.CreateTemp(s.dir, "out-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	return f.Name(), errors.Join(err, f.Close())
}

// host answers what plugins ask: one deployed environment, a secret, a table of settings, a shelf.
func host(t *testing.T, url string) (map[string]func(json.RawMessage) (any, error), *shelf) {
	t.Helper()
	s := &shelf{dir: t.TempDir(), items: map[string]stored{}}
	licenses := t.TempDir()
	write(t, filepath.Join(licenses, "game.key"), "KEY")
	var objects sync.Map
	return map[string]func(json.RawMessage) (any, error){
		"host/env.connect": func(raw json.RawMessage) (any, error) {
			var p struct {
				Call  string
				EnvID string `json:"env_id"`
			}
			if json.Unmarshal(raw, &p) != nil || p.Call != "c-1" || p.EnvID != "@local/~/b/game" {
				return nil, fmt.Errorf("no environment %s in this run (call %s)", p.EnvID, p.Call)
			}
			return map[string]any{"environment_url": url, "mcp_url": url + "/mcp", "headers": map[string]string{"X-Door": "open"}}, nil
		},
		"host/url.reach": func(raw json.RawMessage) (any, error) {
			var p struct{ URL string }
			_ = json.Unmarshal(raw, &p)
			return map[string]any{"url": strings.Replace(p.URL, "agent.invalid", "127.0.0.1:9", 1), "headers": map[string]string{}}, nil
		},
		"host/secret.get": func(raw json.RawMessage) (any, error) {
			if strings.Contains(string(raw), `"key":"CD_KEY"`) {
				return map[string]string{"value": "S3CRET"}, nil
			}
			return nil, errors.New("the configuration doesn't grant it")
		},
		"host/settings.get": func(raw json.RawMessage) (any, error) {
			if strings.Contains(string(raw), `"distribution":"agentenv-rts"`) {
				return map[string]any{"settings": map[string]string{"license_dir": licenses}}, nil
			}
			return map[string]any{"settings": map[string]string{}}, nil
		},
		"host/object.put": func(raw json.RawMessage) (any, error) {
			var p struct{ File string }
			_ = json.Unmarshal(raw, &p)
			b, err := os.ReadFile(p.File)
			objects.Store("object:1", b)
			return map[string]any{"url": "object:1", "size": len(b)}, err
		},
		"host/object.get": func(raw json.RawMessage) (any, error) {
			var p struct{ URL string }
			_ = json.Unmarshal(raw, &p)
			b, ok := objects.Load(p.URL)
			if !ok {
				return nil, errors.New("no object")
			}
			file, err := s.file(b.([]byte))
			return map[string]any{"file": file}, err
		},
		"host/artifact.put": s.put, "host/artifact.get": s.get, "host/artifact.list": s.list,
	}, s
}

func deployed(card any) map[string]any {
	return map[string]any{
		"deployed_envs": []any{map[string]any{"env_id": "@local/~/b/game", "env_version": 1, "deploy_step_id": "up", "sandbox_type": "local", "environment_card": card, "metadata": map[string]any{}}},
		"deployed_agents": []any{map[string]any{
			"agent_name": "alice", "a2a_url": "http://agent.invalid/a", "sandbox_type": "local",
			"a2a_card": map[string]any{"capabilities": map[string]any{"extensions": []any{map[string]any{"uri": "urn:agentenv:mcp-config/v1", "params": map[string]any{"endpoint": "/ext/mcp"}}}}},
		}},
		"metadata": map[string]any{"task_id": "t", "user_overrides": map[string]any{"step_params": map[string]any{"open": map[string]any{"game_settings": map[string]any{"map": "b"}}}}},
	}
}

// Step classes written as plugins in the wild are run against a real environment server, one process for the three of them.
func TestPluginsOfTheWild(t *testing.T) {
	t.Parallel()
	python := generation(t, "arena", "civ", "rts", "httpx_standin")
	url, card := game(t)
	calls, shelf := host(t, url)
	b := start(t, python, calls)
	const id = "@local/~/b/game"
	row := func(step, typ, value string, fields map[string]any, more map[string]any) []string {
		t.Helper()
		doc := map[string]any{"id": step, "type": typ, "env_id": id}
		maps.Copy(doc, fields)
		ctx := deployed(card)
		maps.Copy(ctx["metadata"].(map[string]any), more)
		ops, err := b.execute(stepEntry(typ, value), doc, ctx)
		if err != nil {
			return []string{"error " + err.Error()}
		}
		return ops
	}
	base := strings.TrimSuffix(url, "/")
	lobby := map[string]any{"arena_lobby": map[string]any{"lobby_id": "l-1"}}
	rows := []struct {
		name string
		got  []string
		want []string
	}{
		{"license", row("lic", "arena_license", "arena.steps:LicenseStep", map[string]any{"keys": map[string]string{"cd-key": "CD_KEY"}}, nil), []string{`set metadata/arena_license/installed=["cd-key"]`}},
		{"open", row("open", "arena_open", "arena.steps:OpenStep", map[string]any{"game_settings": map[string]string{"map": "a", "size": "s"}}, nil), []string{`set metadata/arena_lobby/lobby_id="l-1"`, `set metadata/arena_lobby/settings={"map":"b","size":"s"}`}},
		{"seat", row("seat", "arena_seat", "arena.steps:SeatStep", map[string]any{"seat": "x/1", "agent": "alice"}, map[string]any{"arena_seats": map[string]any{"o": 1}}), []string{
			`set metadata/arena_seats/x%2F1={"seat":"x/1","card":"` + base + `/.well-known/agent-env.json","url":"` + base + `/players/x/1/mcp","interfaces":[{"transport":"mcp","url":"/mcp"}],"headers":{"X-Door":"open"},"endpoint":"http://127.0.0.1:9/a/ext/mcp"}`,
		}},
		{"no agent", row("seat", "arena_seat", "arena.steps:SeatStep", map[string]any{"seat": "x", "agent": "bob"}, nil), []string{"error -32010: no agent named 'bob' is deployed (arena/steps.py:176)"}},
		{"finish", row("end", "arena_finish", "arena.steps:FinishStep", nil, lobby), []string{`set metadata/arena_match/status="finished"`}},
		{"refused", row("end", "arena_finish", "arena.steps:FinishStep", nil, nil), []string{"error -32010: finish: no_match: no lobby is open (arena/steps.py:163)"}},
		{"video", row("cam", "arena_video", "arena.steps:VideoStep", nil, nil), []string{`set metadata/arena_videos/cam={"saved":[{"artifact_id":"task-1234-cam-match.mp4","version":1}]}`}},
		{"start", row("go", "civ_start", "civ_match.steps:StartStep", map[string]any{"turns": 10}, nil), []string{`set metadata/civ_match/seats=["alice"]`, `set metadata/civ_match/live_url="` + base + `/live"`}},
		{"await", row("wait", "civ_await", "civ_match.steps:AwaitStep", nil, nil), []string{`set metadata/civ_game/turn=3`}},
		{"recording", row("rec", "civ_recording", "civ_match.steps:RecordingStep", nil, map[string]any{"recordings": map[string]any{"other": []any{}}}), []string{`set metadata/recordings/rec=[{"name":"game.mp4","artifact_id":"t-recording-task-1234.mp4","version":1,"bytes":9}]`}},
		{"match", row("m", "rts_match", "rts_match.steps:MatchStep", nil, nil), []string{`set metadata/rts_match/scenario={"map":"isles"}`, `set metadata/rts_match/setup="S0VZ"`, `set metadata/rts_match/live_url="` + base + `/live"`}},
		{"no map", row("m", "rts_match", "rts_match.steps:MatchStep", map[string]any{"map": "void"}, nil), []string{"error -32010: env '" + id + "' did not start the game: there is no map void (rts_match/steps.py:58)"}},
	}
	for _, r := range rows {
		if !slices.Equal(r.got, r.want) {
			t.Errorf("%s:\n got %s\nwant %s", r.name, strings.Join(r.got, "\n     "), strings.Join(r.want, "\n     "))
		}
	}
	shelf.mu.Lock()
	video, recording := shelf.items["task-1234-cam-match.mp4"], shelf.items["t-recording-task-1234.mp4"]
	for id := range shelf.items {
		if id != "task-1234-cam-match.mp4" {
			delete(shelf.items, id)
		}
	}
	shelf.mu.Unlock()
	if string(video.content) != "frames" || video.typ != "file" || string(recording.content) != "spectator" || recording.body["content_type"] != "video/mp4" {
		t.Errorf("stored %+v and %+v", video, recording)
	}
	got := row("rep", "rts_replay", "rts_match.steps:ReplayStep", nil, nil)
	want := []string{`set metadata/replays/rep={"url":"object:1","same":true,"known":["task-1234-cam-match.mp4"],"first":"frames","description":"Video of '` + id + `'"}`}
	if !slices.Equal(got, want) {
		t.Errorf("replay:\n got %s\nwant %s", got, want)
	}
	for _, line := range []string{"info arena_license: installed cd-key", "warning PLAY alice", "info game.mp4 is file artifact t-recording-task-1234.mp4 v1 at object:sha256:"} {
		if !strings.Contains(b.logged(), line) {
			t.Errorf("no line %q in the log:\n%s", line, b.logged())
		}
	}
}

// What is wrong with a step's document is told before anything runs.
func TestStepCheckAndPreflight(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "civ"), nil)
	e := stepEntry("civ_start", "civ_match.steps:StartStep")
	for _, r := range []struct {
		method, step, want string
	}{
		{"step/check", `{"id":"a","type":"civ_start","env_id":"e","turns":5,"depends_on":["b"],"retry_config":{"max_retries":1}}`, `[]`},
		{"step/check", `{"id":"a","type":"civ_start","env_id":"e"}`, `[{"summary":"is missing","severity":"error","where":"turns"}]`},
		{"step/check", `{"id":"a","type":"civ_start","env_id":"e","turns":0}`, `[{"summary":"civ_start turns must be at least 1, got 0","severity":"error"}]`},
		{"step/check", `{"id":"a","type":"civ_start","env_id":"e","turns":501,"sed":2}`, `[{"summary":"field 'sed' is not one of civ_start","severity":"error","where":"sed","fix":"remove it, or correct its spelling"},{"summary":"turns is 501, and a game has at most 500","severity":"error"}]`},
		{"step/check", `{"id":"a","type":"civ_start","env_id":"e","turns":"x"}`, `[{"summary":"'<' not supported between instances of 'str' and 'int'","severity":"error"}]`},
		{"step/preflight", `{"id":"a","type":"civ_start","env_id":"e","turns":5,"seed":13}`, `[{"summary":"the game needs an even seed","severity":"error"}]`},
	} {
		raw, err := b.call(r.method, map[string]any{"entry": e, "step": json.RawMessage(r.step)})
		if want := `{"problems":` + r.want + `}`; err != nil || string(raw) != want {
			t.Errorf("%s %s\n got %s, %v\nwant %s", r.method, r.step, raw, err, want)
		}
	}
}
