package bundlerun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// inputs is everything that can change how a trial ends, by a name that people understand: the task's steps, what they name in the store, models, and
// what the configuration says of models. Addresses, paths, ids, numbers at once and levels of logs are not among them.
func (e *Engine) inputs(ctx context.Context, j job) (map[string]string, error) {
	out := map[string]string{}
	var order []string
	for i := range j.task.Steps {
		st := &j.task.Steps[i]
		order = append(order, st.ID)
		out["step "+st.ID] = short(ref.DigestOf(doc.Canonical(st.Doc)))
		for _, r := range task.RefsIn(st) {
			if r.Out {
				continue
			}
			version, _ := r.Version.Int()
			if err := e.entity(ctx, out, r.Kind, r.Name, int(version)); err != nil {
				return nil, err
			}
		}
	}
	out["order of steps"] = strings.Join(order, ", ")
	o := j.options
	for role, name := range o.Models {
		out["model of the "+role] = name
		if id, ok := strings.CutPrefix(name, model.ScriptedPrefix); ok {
			if err := e.entity(ctx, out, ref.Artifact, id, 0); err != nil {
				return nil, err
			}
		}
	}
	for name, v := range map[string]string{"agent": o.Agent, "isolation": o.Isolation, "sandbox": strings.Join(o.Sandbox, ",")} {
		if v != "" {
			out[name] = v
		}
	}
	if e.Settings != nil {
		more, err := e.Settings(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, more)
	}
	return out, nil
}

// entity enters a stored document: its version and the digest of what it says.
func (e *Engine) entity(ctx context.Context, out map[string]string, k ref.Kind, id string, version int) error {
	d, err := e.Store.Get(ctx, store.Kind(k), id, version)
	name := string(k) + " " + id
	if errors.Is(err, store.ErrNotFound) { // what comes with the program, or is made by a step
		out[name] = "not in the store"
		return nil
	}
	if err != nil {
		return err
	}
	v := fmt.Sprintf("v%d %s", d.Version, short(ref.DigestOf(d.Body)))
	if old, twice := out[name]; twice && old != v && !strings.Contains(old, v) {
		v = old + ", " + v
	}
	out[name] = v
	return nil
}

// short is enough of a digest to tell two of them apart.
func short(d ref.Digest) string { return d.Hex()[:16] }

// digestOf is the digest of inputs.
func digestOf(in map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(&b, "%q=%q\n", k, in[k])
	}
	return short(ref.DigestOf([]byte(b.String())))
}

// differences says how inputs differ, sorted: "step ask: 1a2b → 3c4d".
func differences(before, now map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if v, ok := now[k]; !ok {
			out = append(out, k+" is gone")
		} else if v != before[k] {
			out = append(out, fmt.Sprintf("%s changed: %s → %s", k, before[k], v))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if _, ok := before[k]; !ok {
			out = append(out, fmt.Sprintf("%s is new: %s", k, now[k]))
		}
	}
	return out
}
