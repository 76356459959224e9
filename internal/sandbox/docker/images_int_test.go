//go:build integration && linux

package docker

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/sandbox"
)

func TestBuildIsCachedBySources(t *testing.T) {
	p := openEngineProvider(t)
	const tag = "agentenv-test-build:1"
	t.Cleanup(func() { removeImage(t, p, tag) })
	sources := "digest-" + rand.Text()
	first, err := p.Build(t.Context(), sandbox.Build{
		Context: buildContext(t, "FROM "+testTag+"\nRUN [\"/bin/sh\", \"-c\", \"echo built it\"]\n", nil), Tag: tag, Sources: sources, Platform: "linux/amd64",
	})
	if err != nil {
		t.Fatal(err)
	}
	if first.Cached || !strings.Contains(first.Log, "built it") || !strings.HasPrefix(first.ID, "sha256:") {
		t.Errorf("%+v", first)
	}
	again, err := p.Build(t.Context(), sandbox.Build{Context: strings.NewReader("not read"), Tag: tag, Sources: sources})
	if err != nil || !again.Cached || again.ID != first.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	info := start(t, p, sandbox.Spec{Tied: true, Image: tag})
	if info.Image != first.ID && !strings.Contains(info.Image, "agentenv-test-build@sha256:") { // Podman gives local images digests
		t.Errorf("a box of the tag is made of %s, want %s", info.Image, first.ID)
	}
}

func removeImage(t *testing.T, p *Provider, ref string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	e, err := findEngine(ctx, "", p.opts.Env, 0)
	if err == nil {
		defer e.Close()
		_, err = e.ImageRemove(ctx, ref, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	}
	if err != nil {
		t.Errorf("remove %s: %v", ref, err)
	}
}

// A build's fault tells what the build said.
func TestBuildFaults(t *testing.T) {
	p := openEngineProvider(t)
	for name, c := range map[string]struct{ dockerfile, want string }{
		"command":    {"FROM " + testTag + "\nRUN [\"/bin/sh\", \"-c\", \"echo what went wrong; exit 3\"]\n", "what went wrong"},
		"no base":    {"FROM no.such.registry.invalid/x:1\n", "no.such.registry.invalid"},
		"dockerfile": {"FROM scratch\nFORM scratch\n", "FORM"},
	} {
		built, err := p.Build(t.Context(), sandbox.Build{Context: buildContext(t, c.dockerfile, nil)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, built, err)
		}
	}
	if _, err := p.Build(t.Context(), sandbox.Build{Context: buildContext(t, "FROM scratch\n", nil), Dockerfile: "other"}); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a missing Dockerfile: %v", err)
	}
	if _, err := p.Build(t.Context(), sandbox.Build{Context: buildContext(t, "FROM scratch\n", nil), Platform: "x"}); err == nil || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("a platform of no form: %v", err)
	}
}

func TestLoad(t *testing.T) {
	p := openEngineProvider(t)
	e, err := p.engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	saved, err := e.ImageSave(t.Context(), []string{testTag})
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	refs, err := p.Load(t.Context(), saved)
	if err != nil || len(refs) != 1 || !strings.HasSuffix(refs[0], testTag) {
		t.Errorf("%q, %v", refs, err)
	}
	if _, err := p.Load(t.Context(), io.LimitReader(strings.NewReader(strings.Repeat("no tarball ", 1000)), 5000)); err == nil {
		t.Error("what is no tarball was loaded")
	}
}

func TestMissingImage(t *testing.T) {
	p := openEngineProvider(t)
	_, err := p.Create(t.Context(), sandbox.Spec{Image: "no.such.registry.invalid/x:1"})
	if err == nil || !strings.Contains(err.Error(), "the engine has no image no.such.registry.invalid/x:1 and can't pull it") {
		t.Errorf("%v", err)
	}
	if l := left(t, p); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}
