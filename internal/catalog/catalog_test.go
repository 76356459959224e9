package catalog_test

import (
	"errors"
	"slices"
	"testing"

	"agentenv.internal/agentenv/internal/catalog"
)

var (
	builtin = catalog.Origin{Kind: catalog.Builtin}
	acme    = catalog.Origin{Kind: catalog.Distribution, Package: "acme", Version: "1.2"}
	other   = catalog.Origin{Kind: catalog.Distribution, Package: "other", Version: "2"}
	git     = catalog.Origin{Kind: catalog.GitPlugin, Package: "board", Where: "/p"}
	config  = catalog.Origin{Kind: catalog.Config, Where: "/c.toml"}
)

func TestWhoServesAName(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims []catalog.Origin
		want   *catalog.Origin
	}{
		{"nobody", nil, nil},
		{"built-in", []catalog.Origin{builtin}, &builtin},
		{"one plugin", []catalog.Origin{acme}, &acme},
		{"config alone", []catalog.Origin{config}, &config},
		{"a built-in over a plugin", []catalog.Origin{acme, builtin}, &builtin},
		{"a built-in over everybody", []catalog.Origin{acme, config, other, builtin, git}, &builtin},
		{"config over a plugin", []catalog.Origin{acme, config}, &config},
		{"config over a git plugin", []catalog.Origin{config, git}, &config},
		{"two plugins", []catalog.Origin{acme, other}, nil},
		{"a distribution and a git plugin", []catalog.Origin{git, acme}, nil},
		{"one plugin twice", []catalog.Origin{acme, acme}, nil},
		{"config can't settle a conflict of plugins", []catalog.Origin{acme, config, other}, nil},
		{"config twice", []catalog.Origin{config, config}, nil},
	} {
		// The order in which claims come never matters.
		for _, claims := range [][]catalog.Origin{c.claims, reversed(c.claims)} {
			s := catalog.New[string]("step type")
			for _, o := range claims {
				s.Add("x", o, o.String())
			}
			got, ok := s.Get("x")
			if ok != (c.want != nil) || ok && (got.Origin != *c.want || got.Name != "x" || got.Value != c.want.String()) {
				t.Errorf("%s: %+v %v", c.name, got, ok)
			}
			if served := len(s.Names()) == 1; served != ok {
				t.Errorf("%s: listed %q", c.name, s.Names())
			}
			conflicts := s.Conflicts()
			if len(c.claims) < 2 {
				if len(conflicts) > 0 {
					t.Errorf("%s: %+v", c.name, conflicts)
				}
				continue
			}
			losers := len(c.claims)
			if c.want != nil {
				losers--
			}
			if len(conflicts) != 1 || conflicts[0].Name != "x" || len(conflicts[0].Losers) != losers ||
				(conflicts[0].Kept == nil) != (c.want == nil) || c.want != nil && *conflicts[0].Kept != *c.want {
				t.Errorf("%s: %+v", c.name, conflicts)
			}
		}
	}
}

func reversed(in []catalog.Origin) []catalog.Origin {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

func TestNamesAreSorted(t *testing.T) {
	s := catalog.New[int]("artifact type")
	for i, n := range []string{"b", "c", "a"} {
		s.Add(n, builtin, i)
	}
	s.Add("d", acme, 1)
	s.Add("d", other, 2)
	if got := s.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got)
	}
	if s.Group() != "artifact type" {
		t.Error(s.Group())
	}
	if c := s.Conflicts(); len(c) != 1 || c[0].Name != "d" || c[0].Kept != nil || !slices.Equal(c[0].Losers, []catalog.Origin{acme, other}) {
		t.Errorf("%+v", c)
	}
}

func TestABuiltInTwiceIsAMistake(t *testing.T) {
	s := catalog.New[int]("step type")
	s.Add("x", builtin, 1)
	defer func() {
		if r := recover(); r != `step type "x" registered twice` {
			t.Error(r)
		}
	}()
	s.Add("x", builtin, 2)
}

func TestOriginsInWords(t *testing.T) {
	for o, want := range map[catalog.Origin]string{builtin: "builtin", acme: "distribution acme 1.2", git: "git plugin board", config: "config"} {
		if o.String() != want {
			t.Errorf("%q, want %q", o, want)
		}
	}
}

func TestWhatIsMadeLater(t *testing.T) {
	s := catalog.New[int]("step type")
	made := 0
	s.Later("x", acme, func() (int, error) { made++; return 7, nil })
	s.Later("broken", other, func() (int, error) { made++; return 0, errors.New("registered by other but failed to load: oh") })
	s.Later("taken", acme, func() (int, error) { made += 100; return 0, nil })
	s.Add("taken", builtin, 3)
	s.Refuse("old", "needs a newer agent-env")
	s.Refuse("old", "and time")
	s.Add("both", acme, 1)
	s.Later("both", other, func() (int, error) { made += 100; return 0, nil })
	if names := s.Names(); !slices.Equal(names, []string{"broken", "taken", "x"}) || made != 0 {
		t.Error(names, made)
	}
	for range 2 {
		if e, ok := s.Get("x"); !ok || e.Value != 7 || e.Origin != acme {
			t.Error(e, ok)
		}
		if _, ok := s.Get("broken"); ok {
			t.Error("served")
		}
		if e, ok := s.Get("taken"); !ok || e.Value != 3 {
			t.Error(e, ok)
		}
	}
	if o, ok := s.Origin("broken"); !ok || o != other || made != 2 {
		t.Error(o, ok, made)
	}
	if all := slices.Collect(s.All()); !slices.Equal(all, []catalog.Entry[int]{{"taken", builtin, 3}, {"x", acme, 7}}) {
		t.Error(all)
	}
	for e := range s.All() {
		if e.Name != "taken" {
			t.Error("it goes on")
		}
		break
	}
	for name, want := range map[string]string{
		"x": "", "nobody": "", "taken": "", "broken": "registered by other but failed to load: oh", "old": "needs a newer agent-env; and time",
		"both": "registered by acme 1.2 and by other 2, so that none of them serves it",
	} {
		if got := s.Reason(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheRestIsAddedWhenItIsAskedFor(t *testing.T) {
	asked := 0
	ask := map[string]func(*catalog.Set[int]) bool{
		"get":       func(s *catalog.Set[int]) bool { e, ok := s.Get("more"); return ok && e.Value == 2 },
		"origin":    func(s *catalog.Set[int]) bool { o, ok := s.Origin("more"); return ok && o == acme },
		"names":     func(s *catalog.Set[int]) bool { return slices.Equal(s.Names(), []string{"more", "x"}) },
		"conflicts": func(s *catalog.Set[int]) bool { return len(s.Conflicts()) == 1 },
		"reason":    func(s *catalog.Set[int]) bool { return s.Reason("not") == "because" },
	}
	for name, f := range ask {
		s := catalog.New[int]("step type")
		s.Add("x", builtin, 1)
		s.Rest(func(s *catalog.Set[int]) {
			asked++
			s.Add("more", acme, 2)
			s.Add("x", acme, 3)
			s.Refuse("not", "because")
		})
		asked = 0
		if e, ok := s.Get("x"); !ok || e.Value != 1 || asked != 0 {
			t.Error("a built-in needs no more")
		}
		if o, ok := s.Origin("x"); !ok || o != builtin || asked != 0 {
			t.Error("a built-in needs no more")
		}
		if first, again := f(s), f(s); !first || !again || asked != 1 {
			t.Error(name, asked)
		}
	}
}
