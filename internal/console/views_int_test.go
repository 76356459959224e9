//go:build integration

package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/plugin/pack"
)

// hostileView tries everything that a page may try, and says in its title what came of it.
const hostileView = `
const said = {};
const show = () => (document.getElementById("out").textContent = JSON.stringify(said));
const attempt = async (name, what) => {
  try { said[name] = "made it: " + String(await what()); } catch (e) { said[name] = "no: " + e.name; }
};
await attempt("module", async () => (await import("./part.js")).word);
await attempt("data", async () => (await (await fetch("data.json")).json()).word);
await attempt("api", async () => (await fetch("/api/plugins/installed")).status);
await attempt("api blind", async () => (await fetch("/api/plugins/installed", { mode: "no-cors" })).type);
await attempt("console", async () => (await fetch("/plugins.js", { mode: "no-cors" })).type);
await attempt("elsewhere", async () => (await fetch(ELSEWHERE, { mode: "no-cors" })).type);
await attempt("storage", () => localStorage.length);
await attempt("session", () => sessionStorage.getItem("agentenv-token"));
await attempt("parent storage", () => parent.sessionStorage.getItem("agentenv-token"));
await attempt("parent", () => parent.document.body.innerText);
await attempt("top", () => { top.location.href = ELSEWHERE + "?top"; return "sent"; });
await attempt("cookie", () => document.cookie);
await attempt("worker", () => navigator.serviceWorker.register("part.js"));
await attempt("caches", () => caches.keys());
await attempt("database", () => indexedDB.open("x").readyState);
await attempt("popup", () => { const w = open("/"); if (!w) throw new DOMException("", "Blocked"); return w; });
await attempt("script", () => new Promise((ok, no) => {
  const s = document.createElement("script");
  s.src = "/api.js"; s.onload = () => ok("ran"); s.onerror = () => no(new DOMException("", "Blocked"));
  document.head.append(s);
}));
await attempt("picture", () => new Promise((ok, no) => {
  const i = new Image();
  i.onload = () => ok("shown"); i.onerror = () => no(new DOMException("", "Blocked"));
  i.src = ELSEWHERE + "?picture";
}));
await attempt("frame", () => new Promise((ok, no) => {
  const f = document.createElement("iframe");
  f.src = "/"; f.onload = () => { try { ok(f.contentDocument.title); } catch (e) { no(e); } };
  document.body.append(f);
  setTimeout(() => no(new DOMException("", "Blocked")), 500);
}));
const form = document.createElement("form");
form.action = ELSEWHERE + "?form"; form.target = "_top"; document.body.append(form); form.submit();
for (const to of ["*", location.origin]) try { parent.postMessage({ token: 1, __proto__: null, type: "agentenv" }, to); } catch {}
said.origin = self.origin; said.done = true;
show();
`

// TestViewsInChromium: a view shows and loads its own files, and reaches nothing of the console, of the browser's storage, or of other servers.
func TestViewsInChromium(t *testing.T) {
	d := newDesk(t, "")
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })) // who must not be asked
	defer other.Close()
	elsewhere := other.URL
	files, id, err := pack.NewPlugin("Hostile", "Tries everything.", pack.Parts{View: true})
	if err != nil {
		t.Fatal(err)
	}
	files["agentenv.plugin.yaml"] += "  - { id: evil, label: \"<b>Evil</b>\", path: /plugins/hostile/views/evil.html }\n  - { id: gone, label: Leaves, path: /plugins/hostile/views/gone.html }\n"
	files["views/evil.html"] = `<!doctype html><link rel="stylesheet" href="evil.css"><style>#in{color:rgb(1,2,3)}</style><script>window.inline = 1</script><script type="module" src="evil.js"></script><p id="in">in</p><p id="out">wait</p>`
	files["views/evil.css"] = "#out { color: rgb(4, 5, 6); }"
	files["views/evil.js"] = `const ELSEWHERE = "` + elsewhere + `";` + hostileView
	files["views/part.js"] = `export const word = "own";`
	files["views/data.json"] = `{"word": "own"}`
	files["views/gone.html"] = `<!doctype html><p>leaving</p><script>location.href = "` + elsewhere + `/?self"</script>`
	repo := gittest.New(t, id)
	var args []string
	for name, text := range files {
		args = append(args, name, text)
	}
	repo.Commit(args...)
	ask := map[string]any{"url": repo.URL()}
	d.consent(d.post("/api/plugins/peek", ask).is(200))
	d.post("/api/plugins/install", ask).is(200)

	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/#token=" + token))
	x.reads(`[data-plugin="hostile"] [data-view="evil"]`, "<b>Evil</b>")
	x.calm()
	x.do(chromedp.Evaluate[chromedp.Void](`localStorage.setItem("kept", "secret"); window.marker = 1`))

	// The page that plugin new writes.
	x.press(`[data-view="hostile"] button`)
	x.reads("#view", "The plugin hostile made this page")
	if got := x.inView(`document.getElementById("out").textContent`, func(s string) bool { return s != "" }); got != "Its script runs." {
		t.Errorf("the new plugin's page says %q", got)
	}

	x.press(`[data-view="evil"] button`)
	got := x.inView(`document.getElementById("out").textContent`, func(s string) bool { return strings.Contains(s, `"done":true`) })
	for _, want := range []string{`"module":"made it: own"`, `"data":"made it: own"`, `"origin":"null"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if n := strings.Count(got, "made it"); n != 2 {
		t.Errorf("a page of a plugin reached what it should not")
	}
	t.Log(got)
	if css := x.inView(`getComputedStyle(document.getElementById("out")).color + getComputedStyle(document.getElementById("in")).color + window.inline`, func(string) bool { return true }); css != "rgb(4, 5, 6)rgb(1, 2, 3)1" {
		t.Errorf("its own style: %s", css)
	}
	x.do(chromedp.Sleep(300 * time.Millisecond))
	if at := x.value("location.href + ' ' + window.marker + ' ' + sessionStorage.length + ' ' + localStorage.getItem('kept')"); at != d.URL+"/ 1 1 secret" {
		t.Errorf("the console's page became %v", at)
	}
	x.reads(`[data-plugin="hostile"]`, "Hostile")
	if x.text("#error")+x.text("#done")+x.text("#plan") != "" {
		t.Errorf("what a view said moved the console: %s", x.text("body"))
	}

	// A frame goes nowhere else.
	x.press(`[data-view="gone"] button`)
	x.do(chromedp.Sleep(500 * time.Millisecond))
	x.narrow()
	if n := asked.Load(); n != 0 {
		t.Errorf("another server was asked %d times", n)
	}

	// A view's address shows nothing outside of the console's frame.
	address, _ := x.value(`document.getElementById("view-frame").src`).(string)
	x.press("#view-close")
	x.until(`!document.querySelector("iframe")`)
	x.do(chromedp.Navigate(address))
	x.reads("body", "shown by the console's page alone")
}

// press presses a button of the console; no place on the screen counts, so that no frame of another process is asked what lies there.
func (x *tab) press(selector string) {
	x.t.Helper()
	x.value(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

// inView is what a script in the view's frame answers, once it is as wanted.
func (x *tab) inView(script string, wanted func(string) bool) string {
	x.t.Helper()
	var last string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		all, err := chromedp.Targets(x.ctx)
		if err != nil {
			x.t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(i *target.Info) bool { return i.Type == "iframe" && strings.Contains(i.URL, "/views/") })
		if i < 0 {
			continue
		}
		ctx, cancel := chromedp.NewContext(x.ctx, chromedp.WithTargetID(all[i].TargetID), chromedp.WithDetachOnCancel())
		last, err = chromedp.Run(ctx, chromedp.Evaluate[string](script))
		cancel()
		if err == nil && wanted(last) {
			return last
		}
	}
	x.t.Fatalf("in vain: %s is %q", script, last)
	return ""
}
