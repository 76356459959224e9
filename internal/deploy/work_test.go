package deploy

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/sandbox"
)

// What installers write is told without whoever URLs sign in as.
func TestWithoutUsers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "nothing": "nothing", "https://a.example/x@y": "https://a.example/x@y",
		"Looking in indexes: https://me:pass@a.example/simple, http://t0ken@b": "Looking in indexes: https://***@a.example/simple, http://***@b",
		"git+ssh://git@c.example/x.git":                                        "git+ssh://***@c.example/x.git",
		"https://a@b:c@d.example?q=e@f":                                        "https://***@d.example?q=e@f",
		"\"https://u:p@h\" <https://u@h>":                                      "\"https://***@h\" <https://***@h>",
		"https://me:a;b,c'(d)@h/x":                                             "https://***@h/x",
		"https://me:@":                                                         "https://***@",
	} {
		if got := withoutUsers(text); got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}

func FuzzWithoutUsers(f *testing.F) {
	for _, s := range []string{"https://u:p@h/x", "://@", "a://b://c@d", "x://\xff@", "://://@@@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := withoutUsers(s)
		if again := withoutUsers(once); again != once {
			t.Errorf("%q becomes %q and then %q", s, once, again)
		}
	})
}

// telling collects what is told.
func telling(t *testing.T) (*Deployments, func() []Work) {
	t.Helper()
	var got []Work
	d := New(nil, nil, slog.New(slog.DiscardHandler))
	d.Open("run", Policy{Tell: func(w Work) { got = append(got, w) }})
	return d, func() []Work {
		out := got
		got = nil
		return out
	}
}

// Work is told of when it begins, now and then, and when it ends, with the last line that it wrote.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := telling(t)
		var secrets redact.Redactor
		secrets.Add("hunter2-hunter2")
		k := d.work(Request{Run: "run", Step: "up", Attempt: 2}, "install r.txt", "mail")
		k.hide = (&maker{options: EnvOptions{Redact: &secrets}}).hide
		k.begin()
		k.begin()
		for range 50 {
			k.output(false, []byte("one line\nhalf of "))
			k.output(true, []byte("of the other stream"))
			time.Sleep(10 * time.Millisecond)
		}
		k.output(true, []byte(" https://u:p@h with hunter2-hunter2\x1b[1m\r"))
		time.Sleep(time.Second)
		k.output(false, []byte("\n\n"))
		k.end(errors.New("no"))
		k.end(nil)
		k.output(false, []byte("late\n"))
		got := told()
		if n := len(got); n < 6 || n > 9 {
			t.Errorf("told %d times: %+v", n, got)
		}
		first, last := got[0], got[len(got)-1]
		if first.State != WorkBegun || first.Step != "up" || first.Attempt != 2 || first.String() != "install r.txt for 'mail'" || first.Note != "" || first.Ended() {
			t.Errorf("%+v", first)
		}
		if last.State != WorkFailed || !last.Ended() || last.ID != first.ID || last.Seconds != 1.5 || got[1].State != WorkUnderWay || got[1].Note != "half of one line" {
			t.Errorf("%+v, then %+v", got[1], last)
		}
		all := ""
		for _, w := range got {
			all += w.Note + "\n"
		}
		if strings.Contains(all, "hunter2") || strings.Contains(all, "u:p") || strings.ContainsRune(all, 0x1b) || !strings.Contains(all, "of the other streamof the other stream") {
			t.Errorf("notes: %q", all)
		}
		if slices.ContainsFunc(got, func(w Work) bool { return len(w.Note) > maxNote+len("…") }) {
			t.Error("a note is too long")
		}
		// Nobody asked, or nothing began.
		d.Open("quiet", Policy{})
		none := d.work(Request{Run: "quiet"}, "x", "")
		none.begin()
		none.output(false, []byte("x\n"))
		none.end(nil)
		d.work(Request{Run: "run"}, "x", "").end(nil)
		if got := told(); len(got) > 0 {
			t.Errorf("%+v", got)
		}
	})
}

// An image that comes in is told of, and one that is here is not.
func TestPulling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := telling(t)
		spec := sandbox.Spec{Image: "h.x/y:1"}
		k := d.pulling(Request{Run: "run", Step: "box", Name: "b"}, &spec)
		spec.Progress(0, 0)
		k.end(nil)
		if got := told(); len(got) > 0 {
			t.Errorf("%+v", got)
		}
		spec = sandbox.Spec{Image: "h.x/y:1"}
		k = d.pulling(Request{Run: "run", Step: "box", Name: "b"}, &spec)
		for i := range int64(100) {
			spec.Progress(i, 100)
			time.Sleep(10 * time.Millisecond)
		}
		spec.Progress(100, 100)
		k.end(nil)
		spec.Progress(100, 100)
		got := told()
		last := got[len(got)-1]
		if len(got) < 10 || len(got) > 13 || got[0].State != WorkBegun || got[0].Total != 100 || got[0].String() != "pull h.x/y:1" || last.State != WorkDone || last.Done != 100 || last.Total != 100 || last.Seconds != 1 {
			t.Errorf("%d, %+v", len(got), got)
		}
		own := sandbox.Spec{Image: "h.x/y:1", Progress: func(int64, int64) {}}
		if d.pulling(Request{Run: "run"}, &own) != nil || d.pulling(Request{Run: "run"}, &sandbox.Spec{}) != nil {
			t.Error("told of what has its own progress, or no image")
		}
	})
}
