//go:build integration && linux

package console_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// program is agent-env with a home of its own: that of the desk whose console shows what it deploys.
type program struct {
	t    *testing.T
	bin  string
	home string
	desk *desk
}

// newProgram builds the program. It skips, or fails where everything has to be here, on a machine that shows no desktop.
func newProgram(t *testing.T, d *desk) *program {
	t.Helper()
	for _, need := range []string{"Xvfb", "openbox"} {
		if _, err := exec.LookPath(need); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	p := &program{t: t, bin: filepath.Join(t.TempDir(), "agent-env"), home: d.env["HOME"], desk: d}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", p.bin, "../../cmd/agent-env")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return p
}

func (p *program) run(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.bin, args...)
	cmd.Dir = p.home
	for k, v := range p.desk.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("agent-env %s: %v\n%s%s", strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}

// deploy puts a computer of 640 by 400 and brings it up.
func (p *program) deploy() {
	p.t.Helper()
	at := filepath.Join(p.home, "pc")
	if err := os.MkdirAll(at, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "env.toml"), []byte("type = \"computer\"\n[display]\nwidth = 640\nheight = 400\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	p.run("env", "put", "@local/by/pc", at)
	p.run("env", "deploy", "@local/by/pc")
}

// differ counts the pixels of the page's picture that aren't as they were when it was remembered, within a part of it.
const differ = `((x, y, w, h) => {
  const now = document.getElementById("screen").getContext("2d").getImageData(x, y, w, h).data, old = window.remembered;
  let n = 0;
  for (let i = 0; i < now.length; i += 4) if (!old || now[i] !== old[i] || now[i+1] !== old[i+1] || now[i+2] !== old[i+2]) n++;
  return n;
})(%d, %d, %d, %d)`

func (x *tab) remember(at [4]int) {
	x.t.Helper()
	x.value(fmt.Sprintf(`(window.remembered = document.getElementById("screen").getContext("2d").getImageData(%d, %d, %d, %d).data).length`, at[0], at[1], at[2], at[3]))
}

// changes waits until so many pixels of a part aren't as remembered.
func (x *tab) changes(at [4]int, pixels int) {
	x.t.Helper()
	x.until(fmt.Sprintf(differ, at[0], at[1], at[2], at[3]) + fmt.Sprintf(" > %d", pixels))
}

// TestScreenInChromium: a page shows the screen of a computer that another process has deployed: what a tool call draws appears on it. It can't be touched
// unless the console allows that; then the page's clicks and keys reach it. It fits a phone, and says when the computer goes.
func TestScreenInChromium(t *testing.T) {
	d := newDesk(t, "")
	p := newProgram(t, d)
	p.deploy()
	gone := false
	t.Cleanup(func() {
		if !gone {
			p.run("env", "stop", "@local/by/pc")
		}
	})
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/computers#token=" + token))
	x.reads("#computers", "@local/by/pc")
	x.reads("#computers", "by hand")
	x.do(chromedp.Click(chromedp.CSS("[data-watch]")))
	x.reads("#view-state", "Live.")
	x.until(`document.getElementById("screen").width === 640 && document.getElementById("screen").height === 400 && +document.getElementById("view").dataset.pictures > 0`)

	// An agent opens the menu of the window manager.
	menu := [4]int{300, 150, 60, 40}
	x.remember(menu)
	p.run("env", "call", "@local/by/pc", "computer_screenshot")
	p.run("env", "call", "@local/by/pc", "computer_click", `{"x": 290, "y": 140, "button": "right"}`)
	x.changes(menu, 1000)

	// Nothing but watching.
	if x.value(`document.getElementById("only-watch").hidden || !document.getElementById("hands").hidden`) != false {
		t.Error("the page doesn't say that one only watches, or offers more")
	}
	id, _ := x.value(`document.querySelector("[data-watch]").dataset.watch`).(string)
	for _, body := range []string{`{"watch":"x","action":"type","text":"x"}`, `{}`} {
		if r := d.ask(http.MethodPost, "/api/computers/"+id+"/input", body).is(http.StatusForbidden); !strings.Contains(r.text, "--take-over") {
			t.Error(r.text)
		}
	}
	page := x.value("document.documentElement.outerHTML").(string)
	if strings.Contains(page, "/c/") || strings.Contains(page, token) {
		t.Error("the page holds a secret address, or the token")
	}
	x.remember(menu)
	x.do(chromedp.Click(chromedp.CSS("#screen")))
	x.do(chromedp.Evaluate[chromedp.Void](`new Promise(r => setTimeout(r, 1000))`))
	if n := x.value(fmt.Sprintf(differ, menu[0], menu[1], menu[2], menu[3])); n != 0.0 {
		t.Errorf("a click on the page changed %v pixels", n)
	}
	x.narrow()
	x.do(chromedp.EmulateViewport(1000, 900))
	x.clean(d.URL)

	// Another console, which lets people take over.
	d.takeOver = true
	d.serve()
	x = newTab(t)
	x.do(chromedp.Navigate(d.URL + "/computers#token=" + token))
	x.reads("#computers", "@local/by/pc")
	x.do(chromedp.EmulateViewport(1000, 900), chromedp.Click(chromedp.CSS("[data-watch]")))
	x.reads("#view-state", "Live.")
	x.until(`!document.getElementById("hands").hidden && +document.getElementById("view").dataset.pictures > 0`)
	x.remember(menu)
	x.do(chromedp.Click(chromedp.CSS("#take")))
	x.do(chromedp.Evaluate[chromedp.Void](`(c => c.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true})))(document.getElementById("screen"))`))
	x.changes(menu, 1000) // the menu is closed
	x.remember(menu)
	x.do(chromedp.Evaluate[chromedp.Void](press(290.0/640, 140.0/400, 2)))
	x.changes(menu, 1000) // and open again
	if x.value(`document.getElementById("error").hidden`) != true {
		t.Errorf("the page says: %s", x.text("#error"))
	}
	x.narrow()
	x.clean(d.URL)

	p.run("env", "stop", "@local/by/pc")
	gone = true
	x.reads("#view-state", "The computer is gone")
	x.reads("#computers", "No computer stands")
	x.do(chromedp.Click(chromedp.CSS("#leave")))
	x.until(`document.getElementById("view").hidden`)
}

// press is a click of a button at a part of the picture.
func press(fx, fy float64, button int) string {
	return fmt.Sprintf(`(() => {
  const c = document.getElementById("screen"), b = c.getBoundingClientRect();
  c.setPointerCapture = () => {};
  for (const type of ["pointerdown", "pointerup"])
    c.dispatchEvent(new PointerEvent(type, {clientX: b.left + b.width * %g, clientY: b.top + b.height * %g, button: %d, pointerId: 1, bubbles: true}));
})()`, fx, fy, button)
}
