//go:build integration

package report

import (
	"context"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// TestPageInChromium opens the page in a real browser: its plots are drawn, it asks for nothing beside itself, and what its texts say is not run.
func TestPageInChromium(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no chromium here")
	}
	const evil = `"><img src=x onerror="document.title='run'"><script>document.title='run'</script>`
	r := &Report{ID: "e" + evil, Eval: "mail/nightly", K: 4, Program: "0.1.0"}
	statuses := []runlog.Status{runlog.Passed, runlog.Scored, runlog.Unscored, runlog.Failed, runlog.InfraFailed, runlog.Cancelled, runlog.Passed, runlog.Passed}
	for task := range 6 {
		for n, s := range statuses {
			x := Trial{Task: fmt.Sprint("t", task, evil), Number: n + 1, Status: s, Run: fmt.Sprint("r", task, n), Seconds: 1.5, Error: evil}
			if s == runlog.Passed || s == runlog.Scored {
				x.Scores = map[string]float64{"v": float64(n+1) / 8}
			}
			r.Trials = append(r.Trials, x)
		}
	}
	r.Sum()
	var b strings.Builder
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	var others atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/page" {
			others.Add(1)
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, b.String())
	}))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())

	shot := filepath.Join(t.TempDir(), "page.png")
	open := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, browser, append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,1600",
			"--user-data-dir=" + t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		return string(out)
	}
	dom := open("--dump-dom", "http://127.0.0.1:"+port+"/page")
	if strings.Contains(dom, "<title>run</title>") || strings.Count(dom, "<script") > 0 {
		t.Error("a text of the page was run")
	}
	for _, want := range []string{"<svg", "<polyline", "<circle", "pass@k", "mail/nightly"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if n := strings.Count(dom, `>r`); n < len(r.Trials) {
		t.Errorf("%d of %d trials are on the page", n, len(r.Trials))
	}
	open("--screenshot="+shot, "http://127.0.0.1:"+port+"/page")
	if n := others.Load(); n > 1 { // a browser asks for an icon by itself
		t.Errorf("it asked for %d other things", n)
	}
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	colors := map[[3]uint32]bool{}
	for y := m.Bounds().Min.Y; y < m.Bounds().Max.Y; y += 2 {
		for x := m.Bounds().Min.X; x < m.Bounds().Max.X; x += 2 {
			r, g, b, _ := m.At(x, y).RGBA()
			colors[[3]uint32{r, g, b}] = true
		}
	}
	if len(colors) < 20 {
		t.Errorf("the page has %d colours: nothing is drawn", len(colors))
	}
}
