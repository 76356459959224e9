//go:build integration || soak

package peer_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// livePage watches the screen and tells which colours it saw.
const livePage = `<!DOCTYPE html><img id="live" src="/live"><script>
(async () => {
  const live = document.getElementById("live");
  const context = Object.assign(document.createElement("canvas"), {width: 1280, height: 800}).getContext("2d", {willReadFrequently: true});
  const seen = [];
  while (seen.length < 3) {
    if (live.naturalWidth) {
      context.drawImage(live, 0, 0);
      const colour = [...context.getImageData(640, 400, 1, 1).data].join();
      if (seen.at(-1) !== colour) {
        seen.push(colour);
        await fetch("/seen", {method: "POST"});
      }
    }
    await new Promise((r) => setTimeout(r, 25));
  }
  await fetch("/told", {method: "POST", body: JSON.stringify({seen, width: live.naturalWidth})});
})();
</script>`

// paint fills the screen with a colour.
func (d *desktop) paint(t *testing.T, colour, id string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"request_id": id, "argv": []string{"sh", "-c", `/usr/bin/python3 -c '
import tkinter
r = tkinter.Tk()
r.overrideredirect(True)
r.geometry("1280x800+0+0")
r.configure(background="` + colour + `")
r.update()
r.after(100, lambda: print("shown", flush=True))
r.mainloop()' >` + id + ` 2>&1 & for i in $(seq 200); do grep -q shown ` + id + ` && exit; sleep 0.05; done; exit 1`}})
	if err != nil {
		t.Fatal(err)
	}
	if status, said := d.ask(t, "/agentenv/ext/computer-exec/run", string(body)); status != 200 || !strings.HasPrefix(said, `{"exit_code":0`) {
		t.Fatalf("%d %s", status, said)
	}
}

// TestComputerWatched: a film shows what happened, and Chromium the screen as it changes, through a proxy such as a console's.
func TestComputerWatched(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d := startDesktop(t, true)
	film := filepath.Join(t.TempDir(), "film.png")
	record := exec.CommandContext(t.Context(), builtBinary(t), "computer", "record", d.url, "--output", film, "--pause", "1s", "--json")
	var recorded strings.Builder
	record.Stdout = &recorded
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	colours := []string{"#ff0000", "#00ff00", "#0000ff"}
	for i, c := range colours {
		d.paint(t, c, "film"+string(rune('0'+i)))
		time.Sleep(300 * time.Millisecond)
	}
	if err := record.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = record.Wait() // by the signal
	t.Log(recorded.String())

	// Another reader of animated PNGs than this program's own sees what happened.
	out, err := exec.CommandContext(t.Context(), filepath.Join(peerBin(t), "python"), "-c", `
import sys
from PIL import Image
film = Image.open(sys.argv[1])
for i in range(film.n_frames):
    film.seek(i)
    print(*film.size, *film.convert("RGB").getpixel((640, 400)))`, film).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.HasSuffix(string(out), "1280 800 255 0 0\n1280 800 0 255 0\n1280 800 0 0 255\n") {
		t.Errorf("the film shows %s", out)
	}
	to, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	told, seen := make(chan string, 1), make(chan struct{}, 10)
	mux := http.NewServeMux()
	mux.Handle("/live", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1})
	mux.HandleFunc("/seen", func(http.ResponseWriter, *http.Request) { seen <- struct{}{} })
	mux.HandleFunc("/told", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what came is told
		told <- string(b)
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, livePage) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer srv.CloseClientConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	page := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, browser, append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars",
			"--window-size=1280,800", "--user-data-dir=" + t.TempDir(),
		}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		return cmd
	}
	chromium := page("--remote-debugging-port=0", srv.URL)
	if err := chromium.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = chromium.Wait() // it was killed
	}()
	for i, c := range []string{"#00ff00", "#ff0000"} { // once it shows what is there, and each time after
		select {
		case <-seen:
		case <-ctx.Done():
			t.Fatal("the page shows nothing")
		}
		d.paint(t, c, "live"+string(rune('0'+i)))
	}
	var got struct {
		Seen  []string
		Width int
	}
	select {
	case b := <-told:
		if err := json.Unmarshal([]byte(b), &got); err != nil {
			t.Fatal(b, err)
		}
	case <-ctx.Done():
		t.Fatal("the page tells nothing")
	}
	if want := "0,0,255,255 0,255,0,255 255,0,0,255"; strings.Join(got.Seen, " ") != want || got.Width != 1280 {
		t.Errorf("live: %q at width %d", got.Seen, got.Width)
	}
}
