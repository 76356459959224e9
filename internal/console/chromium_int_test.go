//go:build integration

package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// tab is a page in a real browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // exceptions, and errors on the browser's console
	asked  []string // addresses that were asked for
}

// newTab starts a browser in which only the loopback can be reached.
func newTab(t *testing.T) *tab {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no chromium here")
	}
	o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	all, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), o...)
	ctx, end := chromedp.NewContext(all)
	late, cancel := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(func() {
		cancel()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("end the browser: %v", err)
		}
		end()
		stop()
	})
	x := &tab{t: t, ctx: late}
	err = chromedp.Listen(ctx, func(ev any) {
		x.mu.Lock()
		defer x.mu.Unlock()
		switch ev := ev.(type) {
		case *cdpruntime.EventExceptionThrown:
			x.faults = append(x.faults, fmt.Sprintf("%+v", ev.ExceptionDetails))
		case *network.EventRequestWillBeSent:
			x.asked = append(x.asked, ev.Request.URL)
		}
	})
	if err == nil {
		_, err = chromedp.Call(late, network.Enable, network.EnableParams{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	x.t.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.t.Fatalf("%v\nthe page says: %s", err, x.text("body"))
	}
}

// text is what people read in an element.
func (x *tab) text(selector string) string {
	out, _ := chromedp.Run(x.ctx, chromedp.Evaluate[string](fmt.Sprintf(`(document.querySelector(%q) || {innerText: ""}).innerText`, selector))) // "" tells
	return out
}

// until waits for a condition of the page.
func (x *tab) until(condition string) {
	x.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; { // not Poll: it makes a function of a text, which the page's policy forbids
		is, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool]("!!("+condition+")"))
		switch {
		case is && err == nil:
			return
		case x.ctx.Err() != nil || time.Now().After(end):
			x.t.Fatalf("in vain: %s (%v)\nthe page says: %s", condition, err, x.text("body"))
		}
		x.do(chromedp.Sleep(20 * time.Millisecond))
	}
}

// reads waits until an element holds a text.
func (x *tab) reads(selector, want string) {
	x.t.Helper()
	w, _ := json.Marshal(want)
	s, _ := json.Marshal(selector)
	x.until(fmt.Sprintf(`(e => e && e.innerText.includes(%s))(document.querySelector(%s))`, w, s))
}

// calm waits until nothing is being done.
func (x *tab) calm() {
	x.t.Helper()
	x.until(`document.getElementById("status").hidden`)
}

func (x *tab) value(script string) any {
	x.t.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[any](script))
	if err != nil {
		x.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// TestPageInChromium drives the page as a person does: the plan before consent, installing, turning off and on, updating, removing, errors, and on a phone.
func TestPageInChromium(t *testing.T) {
	d := newDesk(t, plainHTTP)
	repo := board(t)
	s := gittest.Serve(t, repo)
	url := s.Of(repo)
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/#token=" + token))
	x.reads("#plugins", "No plugin is installed")
	if at := x.value("location.href"); at != d.URL+"/" {
		t.Errorf("the token stays in the address: %v", at)
	}
	x.do(chromedp.Reload())
	x.reads("#plugins", "No plugin is installed") // the page keeps the token

	// What can't be looked at is told.
	x.do(chromedp.SetValue(chromedp.CSS("#url"), "http://127.0.0.1:1/r"), chromedp.Click(chromedp.CSS("#install-form button")))
	x.reads("#error", "nothing answers")

	// The plan, then consent, then the install.
	x.calm()
	x.do(chromedp.SetValue(chromedp.CSS("#url"), url), chromedp.Click(chromedp.CSS("#install-form button")))
	for _, want := range []string{"bin/board --serve", "aiohttp==3", "board.columns", "token", repo.InWork("rev-parse", "HEAD"), "Nobody vouches for", "./bin/board"} {
		x.reads("#plan", want)
	}
	if x.text("#error") != "" || d.file("plugins.lock") != "" {
		t.Errorf("something was installed before consent, or an error stays: %s", x.text("#error"))
	}
	x.do(chromedp.Click(chromedp.CSS("#go"))) // without the tick nothing happens
	x.do(chromedp.Sleep(200 * time.Millisecond))
	if d.file("plugins.lock") != "" || strings.Contains(d.file("config.toml"), "acked") {
		t.Error("it was installed without consent")
	}
	// It moves while the person reads: the new plan is asked about.
	repo.Commit("agentenv.plugin.yaml", "id: board\nname: Board\nversion: 1.1.0\ncommand: [bin/board, --moved]\n")
	x.do(chromedp.Click(chromedp.CSS("#consent")), chromedp.Click(chromedp.CSS("#go")))
	x.reads("#plan", "bin/board --moved")
	if d.file("plugins.lock") != "" {
		t.Error("another plan was installed than the one that was consented to")
	}
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#consent")), chromedp.Click(chromedp.CSS("#go")))
	x.reads(`[data-plugin="board"]`, "1.1.0")
	x.reads("#done", "board is installed.")
	if c := d.file("config.toml"); !strings.Contains(c, `enabled = ["board"]`) {
		t.Errorf("it is not on:\n%s", c)
	}

	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="switch"]`)))
	x.reads("#done", "board is off.")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="switch"]`)))
	x.reads("#done", "board is on.")
	x.calm()
	repo.Commit("more", "x")
	x.do(chromedp.Click(chromedp.CSS("#check")))
	x.reads(`[data-plugin="board"]`, "There is something newer")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="update"]`)))
	x.reads("#plan", "is to be updated")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#consent")), chromedp.Click(chromedp.CSS("#go")))
	x.reads("#done", "board is updated.")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#sync")))
	x.reads("#done", "All files are here")

	x.narrow()
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="remove"]`)), chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="remove-really"]`)))
	x.reads("#done", "board is removed.")
	x.reads("#plugins", "No plugin is installed")
	x.clean(d.URL)

	// Another token than the console's is asked for, and taken.
	x.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("agentenv-token", "wrong")`), chromedp.Reload())
	x.until(`!document.getElementById("token-form").hidden`)
	x.do(chromedp.SetValue(chromedp.CSS("#token"), token), chromedp.Click(chromedp.CSS("#token-form button")))
	x.reads("#plugins", "No plugin is installed")
}

// narrow holds the page to a phone's width, in both schemes of colours.
func (x *tab) narrow() {
	x.t.Helper()
	x.do(chromedp.EmulateViewport(360, 740))
	var ink []any
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(x.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		if err != nil {
			x.t.Fatal(err)
		}
		if w := x.value("document.documentElement.scrollWidth"); w.(float64) > 360 {
			x.t.Errorf("%s: on a phone the page is %v wide", scheme, w)
		}
		ink = append(ink, x.value(`getComputedStyle(document.body).color + " on " + getComputedStyle(document.body).backgroundColor`))
	}
	if ink[0] == ink[1] {
		x.t.Errorf("light and dark look the same: %v", ink)
	}
}

// clean wants no exception, and nothing asked for beside the console.
func (x *tab) clean(base string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.faults) > 0 {
		x.t.Errorf("the page failed: %q", x.faults)
	}
	for _, a := range x.asked {
		if !strings.HasPrefix(a, base+"/") && !strings.HasPrefix(a, "data:,") {
			x.t.Errorf("the page asked for %s", a)
		}
		if strings.Contains(a, token) && !strings.Contains(a, "#token=") {
			x.t.Errorf("the token was sent in an address: %s", a)
		}
	}
}

// TestHostileInChromium: what a manifest says is shown as text: no markup, no script, no address that runs something, no character that turns the writing around.
func TestHostileInChromium(t *testing.T) {
	d := newDesk(t, "")
	const evil = `<img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload=window.hit=1>"';--><iframe srcdoc='<script>parent.hit=1</script>'>`
	const bidi = "safe\u202egnp.exe\u202c\u2066x\u2069\u200b"
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	one := gittest.New(t, "one")
	one.Commit("agentenv.plugin.yaml", "id: one\nname: "+q("One "+evil)+"\nversion: "+q(bidi)+"\ndescription: "+q(evil+bidi)+"\nhomepage: \"javascript:window.hit=1\"\nrepository: "+q("data:text/html,"+evil)+
		"\ncommand: [bin/one, "+q(evil)+", "+q(bidi)+"]\nconfig: {"+q(evil)+": 1}\nrequires_pip: ["+q(evil)+"]\n", "bin/one", "#!/bin/sh\n")
	set := bundle(t, "set", "description: "+q(evil+bidi)+"\nconfig_inputs: [{key: one.owner, label: "+q(evil)+", help: "+q(bidi)+", default: "+q(evil)+"}]\nsecrets: [{key: k, label: "+q(evil)+"}]\n"+
		"mcp: [{template: {name: m, transport: stdio, command: "+q(evil)+", args: ["+q(bidi)+"]}}]\n", one)
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/#token=" + token))
	x.reads("#plugins", "No plugin is installed")
	x.do(chromedp.SetValue(chromedp.CSS("#url"), set.URL()), chromedp.Click(chromedp.CSS("#install-form button")))
	x.reads("#plan", "Nobody vouches for")
	x.reads("#plan", `<img src=x onerror="window.hit=1"><script>`)
	x.reads("#plan", `safe\u{202e}gnp.exe`)
	x.calm()
	x.harmless()
	x.do(chromedp.Click(chromedp.CSS("#consent")), chromedp.Click(chromedp.CSS("#go")))
	x.reads(`[data-plugin="one"]`, `<img src=x onerror="window.hit=1"><script>`)
	x.reads(`[data-plugin="one"]`, `safe\u{202e}gnp.exe`)
	x.calm()
	x.harmless()
	x.narrow()
	x.clean(d.URL)

	// Even a script that would try can't make markup of a text, nor run one that stands in the page.
	got := x.value(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "made" } catch (e) { return e.name } })()`)
	if got != "TypeError" {
		t.Errorf("innerHTML: %v", got)
	}
	x.do(chromedp.Evaluate[chromedp.Void](`document.body.append(Object.assign(document.createElement("a"), {id: "run", href: "javascript:window.hit=1", textContent: "x"}))`), chromedp.Click(chromedp.CSS("#run")), chromedp.Sleep(100*time.Millisecond))
	x.harmless()
}

// harmless wants that nothing of a text became an element, an address or a script.
func (x *tab) harmless() {
	x.t.Helper()
	if hit := x.value("window.hit || 0"); hit != 0.0 {
		x.t.Errorf("a text was run: %v", hit)
	}
	made := x.value(`[...document.querySelectorAll('main img, main svg, main iframe, main script, main [onerror], main [onload], main a[href^="javascript:"], main a[href^="data:"]')].map(e => e.outerHTML).join(" ")`)
	if made != "" {
		x.t.Errorf("a text became %v", made)
	}
	if v := x.value(`/[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.body.innerText)`); v != false {
		x.t.Error("characters that turn the writing around are in the page")
	}
}
