package ledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// registries answer for references, and remember what they were asked for.
type registries struct {
	mu    sync.Mutex
	asked []string
	has   map[string]ref.Digest
	err   error
}

func (r *registries) pin(_ context.Context, text string) (ref.Digest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, text)
	if d, ok := r.has[text]; ok {
		return d, nil
	}
	if r.err != nil {
		return "", r.err
	}
	return "", errors.New("no such image\x1b")
}

// since is what was asked for since the last call, sorted.
func (r *registries) since() string {
	out := strings.Join(slices.Sorted(slices.Values(r.asked)), " ")
	r.asked = nil
	return out
}

func imagesOf(more map[string]string) map[string]string {
	out := map[string]string{
		"tasks/t.json":                 `[{"id":"a","type":"reset_env","env_id":"mail"},{"id":"b","type":"reset_env","env_id":"desk"},{"id":"c","type":"reset_env","env_id":"shop"},{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"bot"}]`,
		"envs/mail/env.toml":           "environment_name = 'mail'\nimage = { ref = 'h.x/mail:1' }",
		"envs/desk/env.toml":           "environment_name = 'desk'\nimage = 'base'",
		"envs/shop/env.toml":           "type = 'website'\nenvironment_name = 'shop'\nfrontend_image = { ref = 'h.x/shop' }",
		"envs/shop/Dockerfile.backend": "FROM scratch",
		"agents/bot/agent.toml":        "image = { ref = 'h.x/mail:1' }",
		"artifacts/base/artifact.toml": "type = 'docker_image'\nref = 'localhost:5000/base:2@" + string(digestOf("base")) + "'",
	}
	maps.Copy(out, more)
	return out
}

func digestOf(text string) ref.Digest { return ref.DigestOf([]byte(text)) }

func imageName(t *testing.T, st store.Store, id string) string {
	t.Helper()
	d, err := st.Get(t.Context(), store.Artifact, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	img, err := artifact.ReadImage(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	return img.Name
}

// Images of registries are pinned once, all of them before anything is written, and stay pinned until their reference changes.
func TestPins(t *testing.T) {
	st := mem.New(mem.Options{})
	r := &registries{has: map[string]ref.Digest{"h.x/mail:1": digestOf("m1"), "h.x/shop": digestOf("s")}}
	write := func(files map[string]string, dry bool) string {
		t.Helper()
		got, err := Write(t.Context(), st, planFS(t, memFS(files), "@local/r", st), Options{DryRun: dry, Pin: r.pin})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, l := range got.Lines {
			if l.Image != "" {
				out = append(out, l.String())
			}
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	expect := func(what, got string, want ...string) {
		t.Helper()
		if w := strings.Join(want, "\n"); got != w {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, w)
		}
	}
	base := "artifacts/base (localhost:5000/base:2 image): v1"
	pinned := func(x string) string { return ", pinned to " + string(digestOf(x)) }
	expect("dry", write(imagesOf(nil), true), "agents/bot (h.x/mail:1 image): v1 (new), pins at write", base+" (new)"+pinned("base"),
		"envs/mail (h.x/mail:1 image): v1 (new), pins at write", "envs/shop (h.x/shop image): v1 (new), pins at write")
	expect("asked for a dry run", r.since())
	expect("first", write(imagesOf(nil), false), "agents/bot (h.x/mail:1 image): v1 (new)"+pinned("m1"), base+" (new)"+pinned("base"),
		"envs/mail (h.x/mail:1 image): v1 (new)"+pinned("m1"), "envs/shop (h.x/shop image): v1 (new)"+pinned("s"))
	expect("asked first", r.since(), "h.x/mail:1 h.x/shop")
	expect("stored", imageName(t, st, "@local/r/mail__env_image"), "h.x/mail:1@"+string(digestOf("m1")))
	expect("stored of a digest", imageName(t, st, "@local/r/base"), "localhost:5000/base:2@"+string(digestOf("base")))

	// The tag moves, and nobody looks.
	r.has["h.x/mail:1"] = digestOf("m1 moved")
	again := []string{
		"agents/bot (h.x/mail:1 image): v1, unchanged" + pinned("m1"), base + ", unchanged" + pinned("base"),
		"envs/mail (h.x/mail:1 image): v1, unchanged" + pinned("m1"), "envs/shop (h.x/shop image): v1, unchanged" + pinned("s"),
	}
	expect("again, dry", write(imagesOf(nil), true), again...)
	expect("again", write(imagesOf(nil), false), again...)
	expect("asked again", r.since())

	// Another reference is pinned anew; what else changes keeps the pin.
	r.has["h.x/mail:2"] = digestOf("m2")
	moved := imagesOf(map[string]string{"envs/mail/env.toml": "environment_name = 'mail'\nimage = { ref = 'h.x/mail:2' }"})
	expect("moved", strings.Split(write(moved, false), "\n")[2], "envs/mail (h.x/mail:2 image): v2 (config changed)"+pinned("m2"))
	expect("asked for what moved", r.since(), "h.x/mail:2")
	described := imagesOf(map[string]string{"artifacts/base/artifact.toml": "type = 'docker_image'\nref = 'h.x/shop'"})
	expect("of another id", strings.Split(write(described, false), "\n")[1], "artifacts/base (h.x/shop image): v2 (config changed)"+pinned("s"))
	r.since()
	described["artifacts/base/artifact.toml"] += "\ndescription = 'about'"
	expect("described", strings.Split(write(described, false), "\n")[1], "artifacts/base (h.x/shop image): v3 (config changed)"+pinned("s"))
	expect("asked for a description", r.since())
}

// What registries refuse is told at once, each with its place, and the store stays as it was.
func TestPinsRefused(t *testing.T) {
	st := mem.New(mem.Options{})
	r := &registries{has: map[string]ref.Digest{"h.x/shop": digestOf("s")}}
	p := planFS(t, memFS(imagesOf(map[string]string{"artifacts/base/artifact.toml": "type = 'docker_image'\nref = 'h.x/none'"})), "@local/r", st)
	_, err := Write(t.Context(), st, p, Options{Pin: r.pin})
	refusal, ok := errors.AsType[*diag.Refusal](err)
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, f := range refusal.List {
		got = append(got, f.String())
	}
	slices.Sort(got)
	want := []string{
		`agents/bot: image: 'h.x/mail:1' can't be pinned: no such image\x1b (line 1)`,
		`artifacts/base: artifact.toml: ref: 'h.x/none' can't be pinned: no such image\x1b (line 2)`,
		`envs/mail: image: 'h.x/mail:1' can't be pinned: no such image\x1b (line 2)`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if page, err := st.List(t.Context(), store.Query{Kind: store.Artifact}); err != nil || len(page.Docs) != 0 {
		t.Errorf("%v %v", page.Docs, err)
	}
	if got := r.since(); got != "h.x/mail:1 h.x/none h.x/shop" {
		t.Error(got)
	}
	for what, pin := range map[string]Pinner{"registries can't be asked here": nil, "answered no sha256 digest": func(context.Context, string) (ref.Digest, error) { return "md5:1", nil }} {
		if _, err := Write(t.Context(), st, p, Options{Pin: pin}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Write(ctx, st, p, Options{Pin: func(ctx context.Context, _ string) (ref.Digest, error) { cancel(); return "", ctx.Err() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
	if _, ok := errors.AsType[*diag.Refusal](err); ok {
		t.Errorf("told to stop: %v", err)
	}
}
