package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// documented is one row of the table of `runs show --json` in docs/json.md.
type documented struct {
	typ    string
	always bool
}

func showTable(t *testing.T) map[string]documented {
	t.Helper()
	src, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(src), "## `runs show RUN --json`")
	if !ok {
		t.Fatal("docs/json.md has no part about runs show")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	out := map[string]documented{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z]+) \\| (yes)? ?\\|").FindAllStringSubmatch(text, -1) {
		out[m[1]] = documented{m[2], m[3] == "yes"}
	}
	return out
}

// fields are the paths of a type as JSON spells it, with their types.
func fields(typ reflect.Type, at string, out map[string]string) {
	join := func(name string) string { return strings.TrimPrefix(at+"."+name, ".") }
	switch {
	case typ == reflect.TypeFor[time.Time]():
		out[at] = "time"
	case typ == reflect.TypeFor[json.RawMessage]():
		out[at] = "any"
	case typ.Kind() == reflect.Pointer:
		fields(typ.Elem(), at, out)
	case typ.Kind() == reflect.Slice:
		fields(typ.Elem(), at+"[]", out)
	case typ.Kind() == reflect.Map:
		fields(typ.Elem(), join("*"), out)
	case typ.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if len(f.Index) == 1 && f.Anonymous && name == "" {
				fields(f.Type, at, out)
			} else if len(f.Index) == 1 && f.IsExported() && name != "-" {
				fields(f.Type, join(name), out)
			}
		}
	default:
		out[at] = map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint64: "integer", reflect.Uint16: "integer", reflect.Float64: "number",
		}[typ.Kind()]
	}
}

// TestShowTable: what docs/json.md says of a run's record are its fields, all of them and no others.
func TestShowTable(t *testing.T) {
	have := map[string]string{}
	fields(reflect.TypeFor[runlog.Record](), "", have)
	table := showTable(t)
	for _, at := range slices.Sorted(maps.Keys(have)) {
		if table[at].typ != have[at] {
			t.Errorf("docs/json.md says of %s that it is %q, and it is %q", at, table[at].typ, have[at])
		}
	}
	for _, at := range slices.Sorted(maps.Keys(table)) {
		if have[at] == "" {
			t.Errorf("docs/json.md tells of %s, which no record has", at)
		}
	}
}

// walk holds a value to the table, and notes the paths that it saw.
func walk(table map[string]documented, at string, v any, seen map[string]bool) (faults []string) {
	if row, ok := table[at]; ok {
		seen[at] = true
		if !fits(row.typ, v) {
			return []string{fmt.Sprintf("%s is %v, no %s", at, v, row.typ)}
		}
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			below := strings.TrimPrefix(at+"."+name, ".")
			if !knows(table, below) && knows(table, at+".*") {
				below = at + ".*"
			}
			faults = append(faults, walk(table, below, m, seen)...)
		}
	case []any:
		for _, e := range v {
			faults = append(faults, walk(table, at+"[]", e, seen)...)
		}
	default:
		faults = append(faults, "docs/json.md doesn't tell of "+at)
	}
	return faults
}

func knows(table map[string]documented, at string) bool {
	for p := range table {
		if p == at || strings.HasPrefix(p, at+".") || strings.HasPrefix(p, at+"[]") {
			return true
		}
	}
	return false
}

// holds tells whether the list that a path leads through has elements, so that what is always in one is there.
func holds(seen map[string]bool, at string) bool {
	i := strings.LastIndex(at, "[].")
	if i < 0 {
		return true
	}
	for p := range seen {
		if strings.HasPrefix(p, at[:i]+"[]") {
			return true
		}
	}
	return false
}

func fits(typ string, v any) bool {
	switch typ {
	case "string":
		_, ok := v.(string)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "time":
		s, _ := v.(string)
		at, err := time.Parse(time.RFC3339Nano, s)
		return err == nil && at.Location() == time.UTC
	case "integer":
		f, ok := v.(float64)
		return ok && f == float64(int64(f))
	case "number":
		_, ok := v.(float64)
		return ok
	default:
		return typ == "any"
	}
}

// TestShowJSON holds what the program prints of real runs to docs/json.md.
func TestShowJSON(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	agentEnv := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "agent-env", args...)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
		out, err := cmd.Output()
		if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
			t.Fatal(err)
		}
		return out
	}
	const task = `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "bad", "type": "load_artifact", "sandbox_name": "box", "artifact_from_step_id": "box", "retry_config": {"retry_from_step_id": "bad", "max_retries": 1}}
]`
	if err := os.WriteFile(filepath.Join(home, "t.json"), []byte(task), 0o600); err != nil {
		t.Fatal(err)
	}
	agentEnv("run", "hello", "--isolation", "namespaces", "--parallel", "2")
	agentEnv("task", "create", "t.json", "--id", "t")
	agentEnv("task", "run", "t", "--param", "box.ttl_seconds=60")
	var list struct {
		Runs []struct {
			ID string `json:"run_id"`
		}
	}
	if err := json.Unmarshal(agentEnv("runs", "list", "--json"), &list); err != nil || len(list.Runs) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	table := showTable(t)
	all := map[string]bool{}
	for _, r := range list.Runs {
		var shown struct{ Run map[string]any }
		if err := json.Unmarshal(agentEnv("runs", "show", r.ID, "--json"), &shown); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, fault := range walk(table, "", any(shown.Run), seen) {
			t.Errorf("%s: %s", r.ID, fault)
		}
		for _, at := range slices.Sorted(maps.Keys(table)) {
			if table[at].always && !seen[at] && holds(seen, at) {
				t.Errorf("%s: there is no %s", r.ID, at)
			}
		}
		maps.Copy(all, seen)
	}
	for _, at := range []string{"options.isolation", "options.step_params.*.*", "steps[].retries", "steps[].error_type", "sandboxes[].isolation", "verifications.*", "failed_at", "scores.*"} {
		if !all[at] {
			t.Errorf("none of the runs shows %s: the test proves less than it should", at)
		}
	}
}
