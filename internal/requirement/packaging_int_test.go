//go:build integration

package requirement_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/requirement"
)

// packagingVersion is the release that the package decides as.
const packagingVersion = "26.4"

// python is an interpreter that has packaging of that release: the machine's own, or one of an environment made here.
func python(t *testing.T) string {
	t.Helper()
	lacks := func(py string) error {
		return exec.Command(py, "-c", "import packaging; assert packaging.__version__ == '"+packagingVersion+"'").Run()
	}
	if lacks("python3") == nil {
		return "python3"
	}
	dir := t.TempDir()
	py := filepath.Join(dir, "bin", "python")
	out, err := exec.Command("python3", "-m", "venv", dir).CombinedOutput()
	if err == nil {
		out, err = exec.Command(py, "-m", "pip", "install", "-q", "packaging=="+packagingVersion).CombinedOutput()
	}
	if err == nil {
		err = lacks(py)
	}
	switch {
	case err == nil:
		return py
	case os.Getenv("REQUIRE") != "":
		t.Fatalf("no Python with packaging %s: %v: %s", packagingVersion, err, out)
	default:
		t.Skipf("no Python with packaging %s: %v", packagingVersion, err)
	}
	return ""
}

// question is one line to Python: a version and another one, or a requirement.
type question struct {
	A            *string                   `json:"a,omitempty"`
	B            *string                   `json:"b,omitempty"`
	Text         string                    `json:"text"`
	Extra        string                    `json:"extra"`
	Environments []requirement.Environment `json:"environments,omitempty"`
	Versions     []string                  `json:"versions,omitempty"`
}

type answer struct {
	Valid, Printable, HasOrder bool
	Text, Public               string
	Order                      *int
	Name, Canonical, URL       string
	Extras, Specifiers         []string
	Applies                    []*bool
	Contains                   []bool
}

// TestPackaging holds 20,000 generated requirements, versions and markers against Python's packaging.
func TestPackaging(t *testing.T) {
	g := &generator{rand.New(rand.NewPCG(9, 26))}
	odd := base()
	odd.PythonVersion, odd.PlatformRelease, odd.ImplementationVersion, odd.SysPlatform, odd.OSName = "3", "", "7.3.11", "win32", "nt"
	plain := base() // in which all that can be evaluated anywhere can be
	plain.PlatformRelease = "6.1.0"
	var all []question
	for range 8000 {
		a, b := g.version(), g.version()
		all = append(all, question{A: &a, B: &b})
	}
	for range 12000 {
		q := question{Text: g.requirement(), Extra: g.pick("img", "GPU_fast", "gpu-fast", "all"), Environments: []requirement.Environment{plain, base(), odd}}
		for range 4 {
			q.Versions = append(q.Versions, g.version())
		}
		all = append(all, q)
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	for _, q := range all {
		if err := enc.Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python(t), "testdata/packaging_oracle.py")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	valid, differences := 0, 0
	for _, q := range all {
		var a answer
		if !lines.Scan() {
			t.Fatal("an answer is missing")
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if a.Valid {
			valid++
		}
		if why := differs(q, a); why != "" {
			if differences++; differences <= 20 {
				t.Errorf("%s\n  asked %s\n  answer %s", why, show(q), lines.Text())
			}
		}
	}
	t.Logf("%d asked, %d of them valid, %d differences", len(all), valid, differences)
	if valid < len(all)/3 || valid > len(all)*9/10 {
		t.Errorf("%d of %d are valid: the generator says little", valid, len(all))
	}
}

func show(q question) string {
	q.Environments = nil
	b, _ := json.Marshal(q)
	return string(b)
}

// differs says in what an answer of Python's is another than ours.
func differs(q question, a answer) string {
	if q.A != nil {
		return versionDiffers(*q.A, *q.B, a)
	}
	evaluates := len(a.Applies) == 0 || a.Applies[0] != nil
	r, err := requirement.ParseMetadata(q.Text)
	if (err == nil) != (a.Valid && evaluates) {
		return "validity"
	}
	if _, err := requirement.Parse(q.Text); (err == nil) != (a.Valid && evaluates && a.Printable && a.URL == "") {
		return "validity of what is declared"
	}
	if requirement.Printable(q.Text) != a.Printable {
		return "printable"
	}
	if err != nil {
		return ""
	}
	extras := slices.Sorted(slices.Values(r.Extras))
	var specs []string
	for _, s := range r.Specifiers {
		specs = append(specs, s.Op+s.Version)
	}
	slices.Sort(specs)
	switch {
	case r.Name != a.Name || r.Canonical() != a.Canonical || r.URL != a.URL:
		return "name or URL"
	case !slices.Equal(slices.Compact(extras), a.Extras):
		return "extras"
	case !slices.Equal(slices.Compact(specs), a.Specifiers):
		return "specifiers: " + strings.Join(specs, " ")
	}
	for i, want := range a.Applies {
		extra := ""
		if i%2 == 1 {
			extra = q.Extra
		}
		if got := r.Applies(q.Environments[i/2], extra); got != (want != nil && *want) {
			return "the marker"
		}
	}
	for i, want := range a.Contains {
		if got := r.Specifiers.Contains(q.Versions[i]); got != want {
			return "contains " + q.Versions[i]
		}
	}
	return ""
}

func versionDiffers(one, other string, a answer) string {
	v, err := requirement.ParseVersion(one)
	if (err == nil) != a.Valid {
		return "validity"
	}
	if err != nil {
		return ""
	}
	w, err := requirement.ParseVersion(other)
	switch {
	case (err == nil) != (a.Order != nil):
		return "validity of the other"
	case err == nil && v.Compare(w) != *a.Order:
		return "order"
	case v.String() != a.Text || v.Public() != a.Public:
		return "spelling: " + v.String()
	}
	return ""
}

// generator makes texts that are mostly right, and some that almost are.
type generator struct{ *rand.Rand }

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *generator) version() string {
	var b strings.Builder
	if g.chance(12) {
		b.WriteString(g.pick("v", "V", " ", "vv"))
	}
	if g.chance(8) {
		b.WriteString(g.pick("0!", "1!", "2!", "!"))
	}
	b.WriteString(g.pick("0", "1", "1", "1.2", "1.2", "1.2.0", "1.2.0.0", "1.3", "2", "01.2", "10.0", "1.10", "1.", "99999999999999999999"))
	if g.chance(3) {
		b.WriteString(g.pick("", ".", "-", "_") + g.pick("a", "b", "c", "rc", "alpha", "BETA", "pre", "preview", "Rc", "x") + g.pick("", ".", "-", "_") + g.pick("", "0", "1", "2", "03"))
	}
	if g.chance(4) {
		b.WriteString(g.pick("-1", "-2", ".post1", "post", "_rev.2", ".r3", ".POST.0", "--1", "-post-"))
	}
	if g.chance(4) {
		b.WriteString(g.pick(".dev0", "dev", "-dev1", "_DEV_2", ".dev.3", ".dev01"))
	}
	if g.chance(5) {
		b.WriteString(g.pick("+acme.1", "+ACME-1", "+1", "+01", "+a_b", "+1.a", "+a", "+", "+a..b", "+\u00e9"))
	}
	if g.chance(60) {
		b.WriteString(g.pick(" ", "\n", ".*", "foo", "-", "\u0661"))
	}
	return b.String()
}

func (g *generator) specifier() string {
	op := g.pick("===", "==", "==", "~=", "~=", "!=", "<=", ">=", ">=", "<", ">", "=", "=>")
	v := g.version()
	switch {
	case g.chance(8) || (op == "==" || op == "!=") && g.chance(4):
		v += ".*"
	case op == "~=" && !strings.Contains(v, "."):
		v += ".1"
	}
	if op == "===" && g.chance(3) {
		v = g.pick("foobar", "1.2", "Foo,bar", "\u00e9", "1.2.0+Acme", "=1", "a b", "1.2.*")
	}
	return op + g.pick("", "", "", " ", "  ", "\t") + v
}

func (g *generator) requirement() string {
	var b strings.Builder
	b.WriteString(g.pick("", "", "", "", "", "", "", " ", "-", "\t"))
	b.WriteString(g.pick("a", "agentenv-acme", "Agentenv_Acme", "x.y--z", "a1", "1a", "a", "B", "a-", "a_", "a b", "acm\u00e9", "a\u200b"))
	b.WriteString(g.pick("", "", " ", "  "))
	if g.chance(4) {
		b.WriteString("[" + g.pick("img", "img,all", " IMG , gpu_fast ", "", "img,", ",img", "a b", "img-", "gpu.fast") + g.pick("]", "]", "]", " ] ", ""))
	}
	switch n := g.IntN(12); {
	case n == 0:
		b.WriteString(g.pick("@", " @ ") + g.pick("https://x.invalid/a.whl", "git+https://x.invalid/a", "file:///w.whl", "") + g.pick("", " ", " "))
	case n < 10:
		var specs []string
		for range 1 + g.IntN(3) {
			specs = append(specs, g.specifier())
		}
		s := strings.Join(specs, g.pick(",", ",", ",", " , ", ",,", " "))
		s += g.pick("", "", "", "", ",", " ", " ,", ",,")
		if g.chance(6) {
			s = "(" + g.pick("", " ") + s + g.pick(")", ")", " ) ", "")
		}
		b.WriteString(s)
	}
	if g.chance(2) {
		b.WriteString(";" + g.marker(0) + g.pick("", "", "", "", " ", "#", ")", " and"))
	}
	return b.String()
}

func (g *generator) marker(depth int) string {
	if depth < 3 && g.chance(3) {
		s := g.marker(depth+1) + g.pick(" and ", " or ", " or", "and ", " xor ") + g.marker(depth+1)
		if g.chance(2) {
			s = "(" + s + g.pick(")", ")", ")", "")
		}
		return s
	}
	left, right := g.variable(), g.value()
	if g.chance(4) {
		left, right = right, left
	}
	if g.chance(20) {
		left = g.value()
	}
	if g.chance(20) {
		right = g.variable()
	}
	op := g.pick("==", "==", "!=", "<", "<=", ">", ">=", " in ", " not in ", "~=", "===", "in", " not  in ", "not", "=")
	blank := g.pick("", " ", " ", "  ")
	return g.pick("", " ") + left + blank + op + blank + right
}

func (g *generator) variable() string {
	return g.pick("python_version", "python_version", "python_full_version", "os_name", "os.name", "sys_platform", "sys.platform", "platform_release",
		"platform.release", "platform_system", "platform_version", "platform.version", "platform_machine", "platform.machine", "extra", "extra", "extra",
		"platform_python_implementation", "platform.python_implementation", "python_implementation", "implementation_name", "implementation_version",
		"extras", "dependency_groups", "bogus", "os_names")
}

func (g *generator) value() string {
	v := g.pick("3.9", "3.12", "3.12.4", "3.11 3.12", "3.*", "3.12.*", "linux", "win32 darwin", "posix", "nt", "x86_64", "CPython", "cpython", "img", "Gpu_Fast",
		"", "5.10", "6.1.0-generic", "11", "10", "a,b", "os_name", "extra", "\u00e9", "1+local", "x86_64'", "\\x41", "\\u00e9", "\\", "\\q", "\\101", "\t", "\\ud800", " 3.9 ",
		g.version())
	if g.chance(2) {
		return "'" + v + "'"
	}
	return "\"" + v + "\""
}
