//go:build integration && linux

package console_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"agentenv.internal/agentenv/sdk/computer"
)

// A bundle whose verifier opens the menu of the window manager at one place, closes it, and opens it at another.
const (
	filmTask   = `[{"id": "up", "type": "deploy_env", "env_id": "pc"}, {"id": "look", "type": "env_outcome_verifier", "env_id": "pc", "file_artifact_id": "check", "verifier_id": "look"}]`
	filmVerify = `import asyncio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def verify(mcp_url):
    async with streamable_http_client(mcp_url) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            await session.call_tool("computer_screenshot", {})
            await asyncio.sleep(1.5)
            await session.call_tool("computer_click", {"x": 320, "y": 50, "button": "right"})
            await asyncio.sleep(1.5)
            await session.call_tool("computer_key", {"keys": ["Escape"]})
            await asyncio.sleep(1.5)
            await session.call_tool("computer_click", {"x": 20, "y": 50, "button": "right"})
            END
    return [{"id": "done", "result": True}]
`
)

// bundle writes it; end is what the verifier does at last.
func (p *program) bundle(end string) {
	p.t.Helper()
	for name, text := range map[string]string{
		"b/envs/pc/env.toml": "type = \"computer\"\n[display]\nwidth = 640\nheight = 400\n", "b/tasks/t.json": filmTask, "b/artifacts/check/verify.py": strings.ReplaceAll(filmVerify, "END", end),
	} {
		at := filepath.Join(p.home, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
}

// start runs the bundle; the command may fail.
func (p *program) start(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.bin, append([]string{"run", "./b", "--quiet"}, args...)...)
	cmd.Dir = p.home
	for k, v := range p.desk.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// film is the film of the newest run, and the run's status.
func (p *program) film() (film []byte, status string) {
	p.t.Helper()
	var list struct {
		Runs []struct {
			ID     string `json:"run_id"`
			Status string `json:"status"`
		} `json:"runs"`
	}
	if err := json.Unmarshal([]byte(p.run("runs", "list", "--json")), &list); err != nil {
		p.t.Fatal(err)
	}
	id := list.Runs[0].ID
	if out := p.run("runs", "show", id); !strings.Contains(out, "screen of @local/~/b/pc: ") || !strings.Contains(out, "agent-env runs export "+id+" -o screen.png") {
		p.t.Errorf("runs show says nothing of the film:\n%s", out)
	}
	at := filepath.Join(p.t.TempDir(), "screen.png")
	p.run("runs", "export", id, "-o", at)
	film, err := os.ReadFile(at)
	if err != nil {
		p.t.Fatal(err)
	}
	leavings := "state/agentenv/runs/*"
	if list.Runs[0].Status == "interrupted" { // the log of its calls goes on when it does
		leavings += "/screen *"
	}
	if left, err := filepath.Glob(filepath.Join(p.home, leavings)); err != nil || len(left) > 0 {
		p.t.Errorf("the run left %v %v", left, err)
	}
	return film, list.Runs[0].Status
}

// lastPicture is what an animated PNG shows in the end.
func lastPicture(t *testing.T, film []byte) image.Image {
	t.Helper()
	var head, data []byte
	var place image.Point
	var canvas *image.RGBA
	show := func() {
		if data == nil {
			return
		}
		out := []byte("\x89PNG\r\n\x1a\n")
		for _, c := range []struct {
			name string
			body []byte
		}{{"IHDR", head}, {"IDAT", data}, {"IEND", nil}} {
			out = binary.BigEndian.AppendUint32(out, uint32(len(c.body)))
			from := len(out)
			out = append(append(out, c.name...), c.body...)
			out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[from:]))
		}
		m, err := png.Decode(bytes.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		if canvas == nil { // the first is of the whole screen
			canvas = image.NewRGBA(m.Bounds())
		}
		draw.Draw(canvas, m.Bounds().Add(place), m, image.Point{}, draw.Src)
		data = nil
	}
	for at := 8; at+12 <= len(film); {
		n := int(binary.BigEndian.Uint32(film[at:]))
		body := film[at+8 : at+8+n]
		switch string(film[at+4 : at+8]) {
		case "IHDR":
			head = slices.Clone(body)
		case "fcTL":
			show()
			copy(head, body[4:12])
			place = image.Pt(int(binary.BigEndian.Uint32(body[12:])), int(binary.BigEndian.Uint32(body[16:])))
		case "IDAT":
			data = append(data, body...)
		case "fdAT":
			data = append(data, body[4:]...)
		}
		at += 12 + n
	}
	show()
	return canvas
}

// menus tells at which of both places a menu is: it has other colours than the desktop's one.
func menus(m image.Image, left, top int) string {
	out := ""
	for name, x := range map[string]int{"A": 330, "B": 30} {
		seen := map[[3]uint32]bool{}
		for y := 60; y < 120; y++ {
			for dx := range 60 {
				r, g, b, _ := m.At(left+x+dx, top+y).RGBA()
				seen[[3]uint32{r, g, b}] = true
			}
		}
		if len(seen) > 4 {
			out += name
		}
	}
	return out
}

// TestFilmInChromium: a browser plays the film of a run: what was drawn when is seen on the page in that order, once.
func TestFilmInChromium(t *testing.T) {
	d := newDesk(t, "")
	p := newProgram(t, d)
	p.bundle("pass")
	if err := p.start("--record-screen").Wait(); err != nil {
		t.Fatal(err)
	}
	film, status := p.film()
	if status != "passed" {
		t.Errorf("the run is %s", status)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/screen.png" {
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write(film)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><body style="margin:0"><img src="/screen.png?%s">`, r.URL.RawQuery) // another address: it plays from its beginning
	}))
	defer srv.Close()
	x := newTab(t)
	x.do(chromedp.EmulateViewport(640, 400))
	// A browser that is held back shows not every picture: the film is played again then.
	const want, rounds = ",A,,B", 3
	got := ""
	for round := 0; round < rounds && got != want; round++ {
		x.do(chromedp.Navigate(fmt.Sprintf("%s/?%d", srv.URL, round)))
		got = x.plays()
	}
	if got != want {
		t.Errorf("the page showed %q", got)
	}
}

// plays are the menus that the page shows, in their order, until it stays at its end.
func (x *tab) plays() string {
	t := x.t
	t.Helper()
	var seen []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		shot, err := chromedp.Run(x.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(shot))
		if err != nil {
			t.Fatal(err)
		}
		if now := menus(m, 0, 0); len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
		if len(seen) >= 4 && time.Until(end) > 3*time.Second {
			end = time.Now().Add(3 * time.Second) // it stays at its end
		}
	}
	return strings.Join(seen, ",")
}

// TestFilmOfRunsThatFail: the film of a run that fails, of one that is cancelled, and of one that is killed, goes to what was seen last.
func TestFilmOfRunsThatFail(t *testing.T) {
	d := newDesk(t, "")
	p := newProgram(t, d)
	p.bundle(`raise ValueError("no")`)
	if err := p.start("--record-screen").Wait(); err == nil {
		t.Error("the run should fail")
	}
	film, status := p.film()
	if got := menus(lastPicture(t, film), 0, 0); status != "failed" && status != "infra_failed" || got != "B" {
		t.Errorf("%s, and the last picture has the menus %q", status, got)
	}

	p.bundle("await asyncio.sleep(100)")
	cmd := p.filming()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the run should be cancelled")
	}
	film, status = p.film()
	if got := menus(lastPicture(t, film), 0, 0); status != "cancelled" || got != "B" {
		t.Errorf("%s, and the last picture has the menus %q", status, got)
	}

	// The next command keeps what a run has left that was killed.
	cmd = p.filming()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the run should be killed")
	}
	film, status = p.film()
	if got := menus(lastPicture(t, film), 0, 0); status != "interrupted" || got != "B" || !bytes.HasSuffix(film, []byte("IEND\xaeB`\x82")) {
		t.Errorf("%s, and the last picture has the menus %q", status, got)
	}
}

// filming starts a run that is filmed, and answers once the film has the second menu.
func (p *program) filming() *exec.Cmd {
	t := p.t
	t.Helper()
	cmd := p.start("--record-screen")
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(p.home, "state/agentenv/runs/*/screen *.png"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 {
			// The film so far is a whole one in another file.
			if b, err := os.ReadFile(found[0]); err == nil && p.shows(b) == "B" {
				return cmd
			}
		}
		if time.Now().After(end) {
			t.Fatal("nothing is filmed")
		}
	}
}

// shows tells which menus the film so far shows in the end; "" of one that has nothing yet.
func (p *program) shows(film []byte) string {
	p.t.Helper()
	f, err := os.Create(filepath.Join(p.t.TempDir(), "film"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(film); err != nil {
		p.t.Fatal(err)
	}
	if n, err := computer.MendFilm(f); err != nil || n == 0 {
		return ""
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return menus(lastPicture(p.t, b), 0, 0)
}
