package term

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(kv ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(kv); i += 2 {
			if kv[i] == name {
				return kv[i+1], true
			}
		}
		return "", false
	}
}

func TestColorRules(t *testing.T) {
	for _, c := range []struct {
		mode string
		tty  bool
		env  []string
		want bool
	}{
		{"auto", true, nil, true},
		{"auto", false, nil, false},
		{"auto", true, []string{"NO_COLOR", "1"}, false},
		{"auto", true, []string{"NO_COLOR", ""}, true},
		{"auto", true, []string{"TERM", "dumb"}, false},
		{"auto", false, []string{"CLICOLOR_FORCE", "1"}, true},
		{"auto", false, []string{"CLICOLOR_FORCE", "0"}, false},
		{"auto", false, []string{"CLICOLOR_FORCE", "1", "NO_COLOR", "1"}, false},
		{"always", false, []string{"NO_COLOR", "1"}, true},
		{"never", true, []string{"CLICOLOR_FORCE", "1"}, false},
	} {
		s, _, _ := Buffers("")
		s.env, s.OutTTY = env(c.env...), c.tty
		if err := s.SetColor(c.mode); err != nil {
			t.Fatal(err)
		}
		if got := s.OutColors().Red("x") != "x"; got != c.want {
			t.Errorf("%s, terminal %v, %q: coloured %v", c.mode, c.tty, c.env, got)
		}
	}
	s, _, _ := Buffers("")
	if err := s.SetColor("pink"); err == nil || err.Error() != `--color takes auto, always or never, not "pink"` {
		t.Error(err)
	}
}

func TestPalette(t *testing.T) {
	on := Palette{true}
	for got, want := range map[string]string{
		on.Bold("a"): "\x1b[1ma\x1b[0m", on.Red("a"): "\x1b[31ma\x1b[0m", on.Green("a"): "\x1b[32ma\x1b[0m", on.Yellow("a"): "\x1b[33ma\x1b[0m",
		on.Cyan("a"): "\x1b[36ma\x1b[0m", on.Dim("a"): "\x1b[2ma\x1b[0m", on.Red(""): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhoSpeaksWhere(t *testing.T) {
	for _, c := range []struct {
		quiet, verbose bool
		want           string
	}{
		{false, false, "note\nproblem\n"},
		{false, true, "note\ndetail\nproblem\n"},
		{true, false, "problem\n"},
		{true, true, "problem\n"},
	} {
		s, out, err := Buffers("")
		s.Quiet, s.Verbose = c.quiet, c.verbose
		s.Note("note")
		s.Detail("detail")
		s.Problem("problem")
		s.Printf("%d", 1)
		s.Println(" two")
		if err.String() != c.want || out.String() != "1 two\n" {
			t.Errorf("%+v: out %q err %q", c, out, err)
		}
	}
}

func TestJSON(t *testing.T) {
	s, out, _ := Buffers("")
	if err := s.JSON(map[string]any{"b": "<&>", "a": []int{}}); err != nil {
		t.Fatal(err)
	}
	if out.String() != `{"a":[],"b":"<&>"}`+"\n" {
		t.Error(out)
	}
	if err := s.JSON(func() {}); err == nil {
		t.Error("a function was printed")
	}
}

func TestLostOutputIsRemembered(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full:", err)
	}
	defer full.Close()
	s, _, _ := Buffers("")
	s.Println("fine")
	if err := s.Failed(); err != nil {
		t.Error(err)
	}
	s.Out.(*stream).w = full
	s.Println("lost")
	if err := s.Failed(); err == nil || !strings.HasPrefix(err.Error(), "write the result: ") {
		t.Error(err)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünï 文 👍🏽 é":      "plain ünï 文 👍🏽 é",
		"a\nb\t\x1b[2K\x00":     `a\nb\t\x1b[2K\x00`,
		"\xff\xc3":              `\xff\xc3`,
		"a\u202eb\u200bc":       `a\u202eb\u200bc`,
		"\u2028\u2029\u0085":    `\u2028\u2029\u0085`,
		"\U000e0001":            `\U000e0001`,
		"\ufeffx":               `\ufeffx`,
		"a soft\u00adhyphen":    `a soft\u00adhyphen`,
		"replacement \ufffd ok": "replacement \ufffd ok",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31m\xff\u202e")
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		for _, r := range got {
			if r < 0x20 || r == 0x7f || r == 0x202e || r == 0x200b {
				t.Errorf("Clean(%q) = %q", text, got)
			}
		}
		if Clean(got) != got {
			t.Errorf("cleaning %q twice changes it", text)
		}
		width(got)
		if w := width(shorten(got, 5)); w > 5 {
			t.Errorf("shortened to %d columns", w)
		}
	})
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 1234: "1.2 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 42_000_000: "42.0 MB", 1 << 30: "1.1 GB", -1500: "-1.5 kB",
		1<<63 - 1: "9223.4 PB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	s, out, _ := Buffers("")
	tab := NewTable("NAME", ">SIZE", "NOTE")
	tab.Row("a", "1", "first")
	tab.Row("文件", "12", "")
	tab.Row("evil\x1b[2K\n", "123", "x", "beyond")
	tab.Row("b")
	if err := tab.Print(s); err != nil {
		t.Fatal(err)
	}
	want := "NAME           SIZE  NOTE\n" +
		"a                 1  first\n" +
		"文件             12\n" +
		`evil\x1b[2K\n   123  x` + "\n" +
		"b\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	if tab.Len() != 4 {
		t.Error(tab.Len())
	}
}

func TestTableColoursItsHeadOnly(t *testing.T) {
	s, out, _ := Buffers("")
	s.SetColor("always")
	tab := NewTable("A", ">B")
	tab.Row("x", "y")
	if err := tab.Print(s); err != nil {
		t.Fatal(err)
	}
	if out.String() != "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\nx  y\n" {
		t.Errorf("%q", out)
	}
}

func TestConfirmOffATerminalNamesTheFlag(t *testing.T) {
	s, out, errs := Buffers("y\n")
	yes, err := s.Confirm(t.Context(), "Remove 3 sandboxes?", "--yes")
	if yes || !errors.Is(err, ErrNoTerminal) || err.Error() != "Remove 3 sandboxes? there is no terminal to ask on; pass --yes" {
		t.Error(yes, err)
	}
	if out.Len()+errs.Len() > 0 {
		t.Error("something was printed")
	}
}

func TestConfirm(t *testing.T) {
	for _, c := range []struct {
		in   string
		want bool
		err  error
		left string
		asks int
	}{
		{"y\nrest", true, nil, "rest", 1},
		{"YES\r\n", true, nil, "", 1},
		{"n\n", false, nil, "", 1},
		{"\n", false, nil, "", 1},
		{"what\nyes\n", true, nil, "", 2},
		{"", false, ErrAborted, "", 1},
		{"y", false, ErrAborted, "", 1},
	} {
		s, _, errs := Buffers(c.in)
		s.InTTY, s.ErrTTY = true, true
		got, err := s.Confirm(t.Context(), "Go\x1b?", "--yes")
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %v %v", c.in, got, err)
		}
		if n := strings.Count(errs.String(), `Go\x1b? [y/N]: `); n != c.asks {
			t.Errorf("%q: asked %d times: %q", c.in, n, errs)
		}
		if left, _ := io.ReadAll(s.In); string(left) != c.left {
			t.Errorf("%q: left %q", c.in, left)
		}
	}
}

func TestConfirmEndsWithItsContext(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s, _, errs := Buffers("")
	s.In, s.InTTY, s.ErrTTY = r, true, true
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(snapshot(s, errs), "[y/N]") {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := s.Confirm(ctx, "Go?", "--yes"); !errors.Is(err, ErrAborted) {
		t.Error(err)
	}
}

func snapshot(s *Streams, b *bytes.Buffer) string {
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	return b.String()
}

func TestSystemStreams(t *testing.T) {
	s := System(env())
	in, out, err := s.Files()
	if in != os.Stdin || out != os.Stdout || err != os.Stderr {
		t.Error("the process's own files are not behind the streams")
	}
	if s.Width() > 0 && !s.ErrTTY {
		t.Error("a width without a terminal")
	}
	b, _, _ := Buffers("")
	if in, out, err := b.Files(); in != nil || out != nil || err != nil || b.Width() != 0 {
		t.Error("files behind buffers")
	}
}
