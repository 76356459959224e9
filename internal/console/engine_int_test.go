//go:build integration && linux

package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// liveImage is the engine's image of the root that desktops run in.
const liveImage = "agentenv-test-live:1"

// newEngineDesk is a desk whose processes know the engine, which has liveImage. It skips, or fails where everything has to be here, on a machine without one.
func newEngineDesk(t *testing.T) *desk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes the image")
	}
	root, err := sandboxtest.Desk(t.Context())
	if err == nil {
		err = exec.CommandContext(t.Context(), "docker", "import", root, liveImage).Run()
	}
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { // an image that is gone needs none
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "rmi", "-f", liveImage).Run()
	})
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return newDesk(t, "", "DOCKER_HOST", host)
	}
	return newDesk(t, "")
}

// provider waits for the one computer that stands and answers what its sandbox is of.
func (d *desk) provider() string {
	d.t.Helper()
	var list struct {
		Computers []struct{ Provider string }
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := json.Unmarshal([]byte(d.ask(http.MethodGet, "/api/computers", "").is(http.StatusOK).text), &list); err != nil {
			d.t.Fatal(err)
		}
		if len(list.Computers) == 1 {
			return list.Computers[0].Provider
		}
		if time.Now().After(end) {
			d.t.Fatalf("%d computers stand", len(list.Computers))
		}
	}
}

// logged waits until the log of a deployment's calls has texts in their order.
func (p *program) logged(texts ...string) {
	p.t.Helper()
	var calls string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(p.home, "state/agentenv/*/*/calls.jsonl"))
		if err != nil || len(found) != 1 {
			p.t.Fatalf("the logs of calls are %v: %v", found, err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			p.t.Fatal(err)
		}
		calls = string(b)
		rest, all := calls, true
		for _, want := range texts {
			var has bool
			_, rest, has = strings.Cut(rest, want)
			all = all && has
		}
		if all {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the log of calls lacks some of %q in this order:\n%s", texts, calls)
		}
	}
}

// TestComputerOfAnEngine: in a container a computer is seen live on a page as in a local sandbox, a person who takes it over reaches it and is on record, and
// the film of a run goes to what was seen last, also of one that is killed.
func TestComputerOfAnEngine(t *testing.T) {
	d := newEngineDesk(t)
	d.takeOver = true
	d.serve()
	p := newProgram(t, d)
	p.bundle("pass")
	if err := os.WriteFile(filepath.Join(p.home, "b/envs/pc/Dockerfile"), []byte("FROM "+liveImage+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("page", func(t *testing.T) { seenOnEngine(t, d, p) })
	t.Run("film", func(t *testing.T) { filmedOnEngine(t, d, p) })
	t.Run("film of a killed run", func(t *testing.T) { killedOnEngine(t, p) })
	if out := p.run("sandbox", "list", "--json"); !strings.Contains(out, `"sandboxes":[]`) {
		t.Errorf("something is left:\n%s", out)
	}
}

func seenOnEngine(t *testing.T, d *desk, p *program) {
	const pc = "@local/by/pc"
	p.run("env", "put", pc, filepath.Join(p.home, "b/envs/pc"))
	p.run("env", "deploy", pc)
	t.Cleanup(func() { p.run("env", "stop", pc) })
	if got := d.provider(); got != "docker" {
		t.Fatalf("the computer is in a sandbox of %s", got)
	}
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/computers#token=" + token))
	x.reads("#computers", pc)
	x.do(chromedp.EmulateViewport(1000, 900), chromedp.Click(chromedp.CSS("[data-watch]")))
	x.reads("#view-state", "Live.")
	x.until(`document.getElementById("screen").width === 640 && document.getElementById("screen").height === 400 && +document.getElementById("view").dataset.pictures > 0`)

	// An agent opens the menu of the window manager, and a person closes it.
	menu := [4]int{300, 150, 60, 40}
	x.remember(menu)
	p.run("env", "call", pc, "computer_screenshot")
	p.run("env", "call", pc, "computer_click", `{"x": 290, "y": 140, "button": "right"}`)
	x.changes(menu, 1000)
	x.remember(menu)
	x.do(chromedp.Click(chromedp.CSS("#take")))
	x.do(chromedp.Evaluate[chromedp.Void](`(c => c.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true})))(document.getElementById("screen"))`))
	x.changes(menu, 1000)
	x.do(chromedp.Click(chromedp.CSS("#leave")))
	p.logged(`"event_type":"tool_call"`, `"event_type":"taken_over"`, `"input":{"action":"key","keys":1}`, `"outcome":"done"`, `"event_type":"given_back"`)
	x.clean(d.URL)
}

func filmedOnEngine(t *testing.T, d *desk, p *program) {
	cmd := p.start("--record-screen")
	if got := d.provider(); got != "docker" {
		t.Errorf("the computer is in a sandbox of %s", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	film, status := p.film()
	if got := menus(lastPicture(t, film), 0, 0); status != "passed" || got != "B" {
		t.Errorf("%s, and the last picture has the menus %q", status, got)
	}
}

func killedOnEngine(t *testing.T, p *program) {
	p.bundle("await asyncio.sleep(100)")
	cmd := p.filming()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the run should be killed")
	}
	if out := p.run("runs", "list"); !strings.Contains(out, "interrupted") { // it takes the container away, says so, and keeps the film
		t.Errorf("the run isn't told to be interrupted:\n%s", out)
	}
	film, status := p.film()
	if got := menus(lastPicture(t, film), 0, 0); status != "interrupted" || got != "B" {
		t.Errorf("%s, and the last picture has the menus %q", status, got)
	}
}
