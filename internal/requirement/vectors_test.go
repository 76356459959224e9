package requirement_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/requirement"
)

// base is the environment that the vectors are computed for.
func base() requirement.Environment {
	return requirement.Environment{
		ImplementationName: "cpython", ImplementationVersion: "3.12.4", OSName: "posix", PlatformMachine: "x86_64", PlatformRelease: "6.1.0-generic",
		PlatformSystem: "Linux", PlatformVersion: "11", PythonFullVersion: "3.12.4", PlatformPythonImplementation: "CPython", PythonVersion: "3.12",
		SysPlatform: "linux",
	}
}

// set is what is installed, by canonical name.
type set map[string]requirement.Dist

func (s set) Find(name string) (requirement.Dist, bool) { d, ok := s[name]; return d, ok }

func (s set) with(name, version string, requires ...string) set {
	out := set{}
	maps.Copy(out, s)
	out[requirement.Canonical(name)] = requirement.Dist{Name: name, Version: version, Requires: requires}
	return out
}

// result says in one word, and a name where one matters, what a requirement is in a set.
func result(text string, in set) string {
	r, err := requirement.Parse(text)
	var (
		url         *requirement.URLError
		unprintable *requirement.UnprintableError
		syntax      *requirement.SyntaxError
	)
	switch {
	case errors.As(err, &url):
		return "URL"
	case errors.As(err, &unprintable):
		return "UNPRINTABLE"
	case errors.As(err, &syntax):
		return "SYNTAX"
	case err != nil:
		return err.Error()
	case !r.Applies(base(), ""):
		return "IGNORED"
	}
	var out []string
	for _, u := range requirement.Check([]*requirement.Requirement{r}, base(), in) {
		s := "MISSING"
		if u.Installed != "" {
			s = "VERSION " + u.Name + " " + u.Installed
		}
		if u.For != nil {
			s += " for " + strings.SplitN(u.For.Text, ";", 2)[0]
		}
		if u.Core {
			s = "CORE " + u.Name + " " + u.Installed
		}
		out = append(out, s)
	}
	if out == nil {
		return "MET"
	}
	return strings.Join(out, ", ")
}

func TestVectors(t *testing.T) {
	none := set{}
	at := func(v string) set { return none.with("agentenv-acme", v) }
	x := none.with("agentenv-acme", "1.2.0", "httpx>=0.27", "pillow>=10; extra == 'img'", "torch>=2; extra == 'gpu' and sys_platform == 'win32'",
		"agentenv-acme[img]; extra == 'all'", `numpy; extra == "Gpu_Fast"`)
	core := none.with("agentenv-framework", "0.9.1375").with("agentenv-framework-protocol", "0.1.379")
	const missing, met, ignored, syntax, url, unprintable = "MISSING", "MET", "IGNORED", "SYNTAX", "URL", "UNPRINTABLE"
	version := func(v string) string { return "VERSION agentenv-acme " + v }
	const img = "MISSING for pillow>=10"
	vectors := []struct {
		id   string
		text []string // A stands for agentenv-acme where it stands alone
		in   set
		want string
	}{
		{"V1", []string{"A>=1.2"}, none, missing},
		{"V2", []string{"A>=1.2"}, at("1.2.0"), met},
		{"V3", []string{"A>=2"}, at("1.2.0"), version("1.2.0")},
		{"V4", []string{"Agentenv_Acme >= 1.2"}, at("1.2.0"), met},
		{"V5", []string{"AGENTENV.ACME", "agentenv--acme"}, at("1.2.0"), met},
		{"V6", []string{"A"}, at("1.0.dev1"), met},
		{"V7", []string{"A>=1.2", "A==1.2.0", "A<=1.2.0"}, at("1.2.0+acme.1"), met},
		{"V8", []string{"A!=1.2.0", "A>1.2.0"}, at("1.2.0+acme.1"), version("1.2.0+acme.1")},
		{"V9", []string{"A==1.2.0+acme.1"}, at("1.2.0"), version("1.2.0")},
		{"V10", []string{"A==1.2.0+ACME-1"}, at("1.2.0+acme.1"), met},
		{"V11", []string{"A>=1.2.0+acme.1", "A<1+local"}, at("1.2.0"), syntax},
		{"V12", []string{"A>=1.2", "A<=1.3", "A<1.3.0rc2"}, at("1.3.0rc1"), met},
		{"V13", []string{"A>=1.3", "A<1.3"}, at("1.3.0rc1"), version("1.3.0rc1")},
		{"V14", []string{"A>1.2"}, at("1.3.0.dev4"), met},
		{"V15", []string{"A>1.2", "A==1.2"}, at("1.2.post1"), version("1.2.post1")},
		{"V16", []string{"A>1.2.post0", "A>=1.2", "A==1.2.*"}, at("1.2.post1"), met},
		{"V17", []string{"A==1.2.*"}, at("1.2.0rc1"), met},
		{"V18", []string{"A!=1.2.*"}, at("1.2.0"), version("1.2.0")},
		{"V19", []string{"A~=1.2"}, at("1.9"), met},
		{"V20", []string{"A~=1.2"}, at("2.0"), version("2.0")},
		{"V21", []string{"A~=1.2.0"}, at("1.3"), version("1.3")},
		{"V22", []string{"A~=1"}, at("1.2.0"), syntax},
		{"V23", []string{"A~=1.2.post2"}, at("1.9"), met},
		{"V24", []string{"A~=1.2rc1"}, at("1.2rc1"), met},
		{"V25", []string{"A===1.2.0"}, at("1.2.0"), met},
		{"V26", []string{"A===1.2"}, at("1.2.0"), version("1.2.0")},
		{"V27", []string{"A===1.2.0+Acme"}, at("1.2.0+acme"), met},
		{"V28", []string{"A===foobar"}, at("foobar"), met},
		{"V28", []string{"A>=1"}, at("foobar"), version("foobar")},
		{"V29", []string{"A>=1!0"}, at("1.2.0"), version("1.2.0")},
		{"V30", []string{"A>=1.0"}, at("1!0.1"), met},
		{"V31", []string{"A>=v1.2", "A==1.2"}, at("1.2.0"), met},
		{"V32", []string{"A>=1.2.0-1"}, at("1.2.0.post1"), met},
		{"V33", []string{"A>=1.2c1"}, at("1.2rc2"), met},
		{"V34", []string{"A>=1,<2", "A (>=1,<2)", "A>=1,"}, at("1.2.0"), met},
		{"V35", []string{"A>=1,,<2", "A>=1 <2", "A=>1", "A=1", "A>=1.*", "A==1.*.2"}, at("1.2.0"), syntax},
		{"V36", []string{"A>1,<1"}, at("1.2.0"), version("1.2.0")},
		{"V37", []string{"A>=1; sys_platform == 'win32'", "A>=1;python_version<'3.10'", "A; extra == 'img'"}, none, ignored},
		{"V38", []string{"A>=1; sys_platform == 'linux'", "A; 'linux' in sys_platform", "A; os.name == 'posix'"}, none, missing},
		{"V39", []string{"A; python_version > '3.9' and (os_name == 'nt' or os_name == 'posix')"}, none, missing},
		{"V40", []string{"A; python_version in '3.11 3.12'", "A; sys_platform not in 'win32 darwin'"}, none, missing},
		{"V41", []string{"A; platform_version >= '10'", "A; sys_platform >= 'a'", "A; platform_release >= '5.10'"}, none, ignored},
		{"V42", []string{"A;", "A; sys_platform", "A; bogus_var == '1'"}, none, syntax},
		{"V43", []string{"A; 'a' == 'a'"}, none, syntax},
		{"V44", []string{"A[img]>=1"}, x, img},
		{"V45", []string{"A[img]"}, x.with("pillow", "11.0"), met},
		{"V46", []string{"A[img]"}, x.with("Pillow", "9.5"), "VERSION Pillow 9.5 for pillow>=10"},
		{"V47", []string{"A[IMG]", "A[img,gpu]>=1"}, x, img},
		{"V48", []string{"A[gpu]"}, x, met},
		{"V49", []string{"A[all]"}, x, img},
		{"V50", []string{"A[gpu-fast]"}, x, "MISSING for numpy"},
		{"V51", []string{"A[nosuch]", "A[]"}, x, met},
		{"V52", []string{"A[img,]"}, x, syntax},
		{"V53", []string{"A[img]>=2"}, x, version("1.2.0")},
		{"V54", []string{"agentenv-framework>=99"}, core, "CORE agentenv-framework 0.9.1375"},
		{"V55", []string{"agentenv_framework>=0.9"}, core, met},
		{"V56", []string{"agentenv-framework-protocol==0.1.1"}, core, "CORE agentenv-framework-protocol 0.1.379"},
		{"V57", []string{"A @ https://x.invalid/a.whl", "A@git+https://x.invalid/a", "A @ file:///w.whl ; os_name=='nt'"}, none, url},
		{"V58", []string{"https://x.invalid/a.whl", "git+https://x.invalid/a", "./A", "-e .", "--index-url=https://x.invalid", "A --pre"}, none, syntax},
		{"V59", []string{"", "  ", "-agentenv", "agentenv-", "agentenv acme", "A>=1.2 agentenv-b", "A # note"}, none, syntax},
		{"V60", []string{" A>=1 "}, at("1.2.0"), met},
		{"V61", []string{"agentenv-acm\u00e9>=1", "A>=\uff11"}, none, syntax},
		{"V62", []string{"evil; os_name != \"\x1b[2K\ragentenv-browser\""}, none, unprintable},
		{"V63", []string{"A>=1\n", "A\t>=1", "A\u00a0>=1", "A; os_name != '\u202ex'", "A; os_name != 'a\u200bb'"}, none, unprintable},
		{"V64", []string{"A; os_name != \"é\""}, at("1.2.0"), met},
		{"V66", []string{"A==1.2.0"}, at("1.2.0"), met},
		{"V67", []string{"a"}, none, missing},
	}
	for _, v := range vectors {
		t.Run(v.id, func(t *testing.T) {
			for _, text := range v.text {
				if strings.HasPrefix(strings.TrimSpace(text), "A") && !strings.HasPrefix(text, "AG") && !strings.HasPrefix(text, "Ag") {
					text = strings.Replace(text, "A", "agentenv-acme", 1)
				}
				if text == "./A" {
					text = "./agentenv-acme"
				}
				if got := result(text, v.in); got != v.want {
					t.Errorf("%q: %s, want %s", text, got, v.want)
				}
			}
		})
	}
	t.Run("V65", func(t *testing.T) {
		var reqs []*requirement.Requirement
		for _, text := range []string{"agentenv-acme>=1.2", "agentenv_acme>=2"} {
			r, err := requirement.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, r)
		}
		got := requirement.Check(reqs, base(), at("1.2.0"))
		if len(got) != 1 || got[0].Requirement != reqs[1] || got[0].Installed != "1.2.0" {
			t.Errorf("got %+v", got)
		}
	})
	seen := []string{"V65"}
	for _, v := range vectors {
		seen = append(seen, v.id)
	}
	for i := 1; i <= 67; i++ {
		if id := fmt.Sprintf("V%d", i); !slices.Contains(seen, id) {
			t.Errorf("no vector %s", id)
		}
	}
}

func TestPublic(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.0+acme.1": "1.2.0", "1.2.0rc1": "1.2.0rc1", "1!2.0": "1!2.0", "1.0.dev0+g1": "1.0.dev0", "v01.2-1": "1.2.post1", "1.0ALPHA_2.Rev3.dev": "1.0a2.post3.dev0",
		" 1.2pre\n": "1.2rc0",
	} {
		v, err := requirement.ParseVersion(text)
		if err != nil || v.Public() != want {
			t.Errorf("%q: %q, %v; want %q", text, v.Public(), err, want)
		}
	}
	for _, text := range []string{"", "v", "1.", "1..2", "1.2.x", "1+", "1+a..b", "!1", "1!", "1.2 3", "1.2.post\u0661", "1.2.po\u017ft1"} {
		if v, err := requirement.ParseVersion(text); err == nil {
			t.Errorf("%q: is %s", text, v)
		}
	}
}

// TestExtrasInCircles shows that packages whose extras name each other are looked at once each.
func TestExtrasInCircles(t *testing.T) {
	in := set{}.
		with("a", "1", "b[y]; extra == 'x'", "c; extra == 'x'").
		with("b", "1", "a[x]; extra == 'y'", "d>2; extra == 'y'").
		with("d", "2")
	r, err := requirement.Parse("a[x]")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range requirement.Check([]*requirement.Requirement{r}, base(), in) {
		got = append(got, u.Missing().Name+" "+u.Installed)
	}
	if want := []string{"d 2", "c "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCoreBehindAnExtra shows that what an extra needs of agent-env itself is told as such.
func TestCoreBehindAnExtra(t *testing.T) {
	in := set{}.with("m", "1", "agentenv-framework>=99; extra == 'plugin'").with("agentenv-framework", "0.9.1375")
	r, err := requirement.Parse("m[plugin]")
	if err != nil {
		t.Fatal(err)
	}
	got := requirement.Check([]*requirement.Requirement{r}, base(), in)
	if len(got) != 1 || !got[0].Core || got[0].For == nil || got[0].Installed != "0.9.1375" {
		t.Errorf("got %+v", got)
	}
}

// TestURLOfAnExtra shows that a distribution's own requirement by URL is met by any version.
func TestURLOfAnExtra(t *testing.T) {
	in := set{}.with("m", "1", "agentenv-hf @ https://x.invalid/a.whl ; extra == 'hf'")
	if got := result("m[hf]", in); got != "MISSING for agentenv-hf @ https://x.invalid/a.whl " {
		t.Error(got)
	}
	if got := result("m[hf]", in.with("agentenv-hf", "0.1")); got != "MET" {
		t.Error(got)
	}
}
