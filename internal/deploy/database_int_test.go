//go:build integration && linux

package deploy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envdb/envdbtest"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
)

func sql(t *testing.T, v *deploy.Env, name, text string) string {
	t.Helper()
	args, err := json.Marshal(map[string]string{"sql": text})
	if err != nil {
		t.Fatal(err)
	}
	return tool(t, v, owner, name+"_sql", string(args))
}

// Each environment of a deployment has a schema of its own, told of at /changes, and gone with it; on both kinds of boxes.
func TestPostgres(t *testing.T) {
	url, log := envdbtest.Start(t)
	server, err := envdb.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]sandbox.Provider{"local": localProvider(t, nil), "docker": engineProvider(t)} {
		t.Run(name, func(t *testing.T) {
			rec := &records{dir: t.TempDir(), kept: map[ref.Digest][]byte{}}
			r := steptest.WithAll(t, deploy.EnvOptions{Postgres: server, Records: rec, Redact: &redact.Redactor{}}, steptest.Named{Name: name, Provider: p})
			r.PutEnv("@local/mail", "mail", serveWords, steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
			r.PutEnv("@local/calendar", "calendar", serveWords, steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
			pin := func(id string) any { return map[string]any{"id": id, "version": 1, "type": "mcp_server"} }
			r.PutEnvDoc("@local/office", "multi", map[string]any{"mcp_server_envs": []any{pin("@local/mail"), pin("@local/calendar")}, "website_envs": []any{}})
			v := r.DeployEnv("@local/office", "up")
			other := r.DeployEnv("@local/office", "second")
			for _, v := range []*deploy.Env{v, other} {
				for _, name := range []string{"mail", "calendar"} {
					if got := sql(t, v, name, "CREATE TABLE items (id int, name text); INSERT INTO items VALUES (1, 'seed'); SELECT name, current_schema() <> 'public' FROM items"); got != "seed|t" {
						t.Errorf("%s: %s", name, got)
					}
				}
			}
			// Loading begins the log of changes anew, and what comes after is in it.
			r.PutEnvironments("@local/day", map[string]string{"mail": `{"words":["m"]}`, "calendar": `{"words":["c"]}`})
			load(t, r, v, "@local/day")
			sql(t, v, "mail", "INSERT INTO items VALUES (2, 'by an agent')")
			code, body := get(t, v, "/changes?after_id=0")
			var answer struct {
				Changes []struct {
					Environment string
					After       struct{ Name string }
					Actors      []struct{ Tool, Role string }
				}
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || len(answer.Changes) != 1 || answer.Changes[0].Environment != "mail" ||
				answer.Changes[0].After.Name != "by an agent" || len(answer.Changes[0].Actors) != 1 {
				t.Errorf("%d %s %v", code, body, err)
			}
			kept, _, err := v.Snapshot(t.Context(), r.Store, deploy.Snapshot{ID: "@local/after", Changes: true, Missed: func(what string, err error) { t.Error(what, err) }})
			if err != nil {
				t.Fatal(err)
			}
			d, err := r.Store.Get(t.Context(), store.Artifact, kept.ID+"__metadata__env_changes", kept.Version)
			if err != nil {
				t.Fatal(err)
			}
			if files, err := artifact.Files(d.Type, d.Body); err != nil || len(files) != 1 || files[0].Size == 0 {
				t.Errorf("%+v %v", files, err)
			}
			// A server that tells its variables tells no record its password.
			vars := tool(t, v, owner, "mail_vars", "{}")
			_, rest, _ := strings.Cut(vars, "DATABASE_URL=postgresql://ae_")
			_, rest, _ = strings.Cut(rest, ":")
			password, _, _ := strings.Cut(rest, "@")
			if len(password) < 20 {
				t.Errorf("no password in %s", vars)
			}
			if left := envdbtest.Left(t, url); strings.Count(left, "user ") != 4 {
				t.Error(left)
			}
			if _, err := r.Envs.Remove(t.Context(), steptest.Run, "@local/office", "second"); err != nil {
				t.Error(err)
			}
			if left := envdbtest.Left(t, url); strings.Count(left, "user ") != 2 {
				t.Error(left)
			}
			gone(t, r, p)
			if left := envdbtest.Left(t, url); left != "" {
				t.Error(left)
			}
			if len(rec.kept) != 2 {
				t.Errorf("%d logs", len(rec.kept))
			}
			b, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			rec.kept["the server's log"] = b
			for what, b := range rec.kept {
				for _, s := range []string{password, envdbtest.Password} {
					if bytes.Contains(b, []byte(s)) {
						t.Errorf("%s holds a password", what)
					}
				}
			}
		})
	}
}
