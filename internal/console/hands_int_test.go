//go:build integration && linux

package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watched is a stream of a console's that a test reads for nothing but its name.
type watched struct {
	id, watch string
	body      io.Closer
}

// watchOnly waits for the one computer that stands and watches it.
func (d *desk) watchOnly() watched {
	d.t.Helper()
	var list struct {
		Computers []struct {
			ID string `json:"id"`
		} `json:"computers"`
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := json.Unmarshal([]byte(d.ask(http.MethodGet, "/api/computers", "").is(http.StatusOK).text), &list); err != nil {
			d.t.Fatal(err)
		}
		if len(list.Computers) == 1 {
			if res := d.stream(list.Computers[0].ID); res != nil {
				b := make([]byte, 1)
				var line []byte
				for b[0] != '\n' {
					if _, err := io.ReadFull(res, b); err != nil {
						d.t.Fatal(err)
					}
					line = append(line, b[0])
				}
				var first struct {
					Watch string `json:"watch"`
				}
				if err := json.Unmarshal(line, &first); err != nil || first.Watch == "" {
					d.t.Fatalf("%s %v", line, err)
				}
				go func() { _, _ = io.Copy(io.Discard, res) }() // ends with its body
				return watched{list.Computers[0].ID, first.Watch, res}
			}
		}
		if time.Now().After(end) {
			d.t.Fatalf("%d computers stand, and show nothing", len(list.Computers))
		}
	}
}

// stream opens the stream of a screen; nil where there is none yet.
func (d *desk) stream(id string) io.ReadCloser {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.URL+"/api/computers/"+id+"/screen", http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil
	}
	d.t.Cleanup(func() { res.Body.Close() })
	return res.Body
}

func (d *desk) input(w watched, body string) {
	d.t.Helper()
	ask := func() reply {
		return d.ask(http.MethodPost, "/api/computers/"+w.id+"/input", fmt.Sprintf(`{"watch":%q,%s}`, w.watch, body))
	}
	got := ask()
	for end := time.Now().Add(60 * time.Second); strings.Contains(got.text, `"unrecorded"`) && time.Now().Before(end); got = ask() {
		time.Sleep(50 * time.Millisecond) // the desktop shows something before its deployment is done
	}
	got.is(http.StatusOK)
}

// TestTakenOverRun: a run whose computer a person took over ends as it would have, and says so wherever its score stands; the log of its calls has each input
// as the person's, and nothing of what they typed.
func TestTakenOverRun(t *testing.T) {
	d := newDesk(t, "")
	p := newProgram(t, d)
	d.takeOver = true
	d.serve()
	// The verifier waits for the window manager's menu, which only a person opens.
	p.bundle("pass")
	if err := os.WriteFile(filepath.Join(p.home, "b/artifacts/check/verify.py"), []byte(waitsForMenu), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := p.start()
	w := d.watchOnly()
	d.input(w, `"action":"type","text":"hunter2"`)
	d.input(w, `"action":"key","keys":["Escape"]`)
	d.input(w, `"action":"click","at":[0.5,0.5],"button":"right"`)
	w.body.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Runs []struct {
			ID        string `json:"run_id"`
			Status    string `json:"status"`
			TakenOver bool   `json:"taken_over"`
		} `json:"runs"`
	}
	if err := json.Unmarshal([]byte(p.run("runs", "list", "--json")), &list); err != nil || len(list.Runs) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	run := list.Runs[0]
	if run.Status != "passed" || !run.TakenOver {
		t.Errorf("%+v", run)
	}
	if out := p.run("runs", "list"); !strings.Contains(out, "look: 1 (a person took over)") {
		t.Error(out)
	}
	if out := p.run("runs", "show", run.ID); !strings.Contains(out, "a person took over pc of @local/~/b/pc (console): from ") || !strings.Contains(out, ", 3 inputs;") {
		t.Error(out)
	}
	if out := p.run("runs", "logs", run.ID); !strings.Contains(out, "a person (console) takes over computer pc of environment @local/~/b/pc") || !strings.Contains(out, "back after 3 inputs") {
		t.Error(out)
	}
	var export struct {
		Run struct {
			Hands []struct {
				From, To time.Time
				Inputs   int
				By       string
			}
		}
		Objects []struct{ Text string }
	}
	if err := json.Unmarshal([]byte(p.run("runs", "export", run.ID)), &export); err != nil {
		t.Fatal(err)
	}
	if h := export.Run.Hands; len(h) != 1 || h[0].Inputs != 3 || h[0].By != "console" || !h[0].To.After(h[0].From) {
		t.Errorf("%+v", h)
	}
	var calls string
	for _, o := range export.Objects {
		if strings.Contains(o.Text, `"event_type"`) {
			calls += o.Text
		}
	}
	order := []string{`"event_type":"taken_over"`, `"input":{"action":"type","characters":7}`, `"outcome":"done"`, `"input":{"action":"key","keys":1}`, `"input":{"action":"click","x":320,"y":200,"button":"right"}`, `"event_type":"given_back"`}
	at := 0
	for _, want := range order {
		i := strings.Index(calls[at:], want)
		if i < 0 {
			t.Fatalf("the log of calls lacks %s in its place:\n%s", want, calls)
		}
		at += i
	}
	if strings.Contains(calls, "hunter2") {
		t.Error("the log of calls has what was typed")
	}
	if left, err := filepath.Glob(filepath.Join(p.home, "state/agentenv/hands/*")); err != nil || len(left) > 0 {
		t.Errorf("sockets are left: %v %v", left, err)
	}
	if b, err := os.ReadFile(filepath.Join(p.home, "state/agentenv/store.db")); err == nil && bytes.Contains(b, []byte("hunter2")) {
		t.Error("the store has what was typed")
	}
}

const waitsForMenu = `import asyncio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def verify(mcp_url):
    async with streamable_http_client(mcp_url) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            first = await session.call_tool("computer_screenshot", {})
            data = [c.data for c in first.content if c.type == "image"][0]
            for _ in range(400):
                await asyncio.sleep(0.05)
                now = await session.call_tool("computer_screenshot", {})
                if abs(len([c.data for c in now.content if c.type == "image"][0]) - len(data)) > 1000:
                    return [{"id": "done", "result": True}]
    return [{"id": "done", "result": False}]
`
