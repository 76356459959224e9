// Package catalog is a set of named things that each know where they came from. Reading an origin never opens the thing.
package catalog

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Kinds of Origin.
const (
	Builtin      = "builtin"
	Distribution = "distribution"
	GitPlugin    = "git plugin"
	Config       = "config"
)

// Origin says where an entry came from.
type Origin struct {
	Kind    string `json:"kind"`
	Package string `json:"package,omitempty"` // canonical distribution name, or git plugin id
	Version string `json:"version,omitempty"`
	Where   string `json:"where,omitempty"` // file or folder that declared it
}

func (o Origin) String() string {
	switch {
	case o.Package != "" && o.Version != "":
		return fmt.Sprintf("%s %s %s", o.Kind, o.Package, o.Version)
	case o.Package != "":
		return o.Kind + " " + o.Package
	default:
		return o.Kind
	}
}

// Entry is a value with its origin.
type Entry[T any] struct {
	Name   string
	Origin Origin
	Value  T
}

// Conflict is a name that more than one origin claims; Kept tells which one serves it, if any.
type Conflict struct {
	Name   string
	Kept   *Origin
	Losers []Origin
}

// Set is a catalog under construction and in use. It is not safe for concurrent writes; any number may read.
// A built-in always wins; config replaces a plugin's entry; a name that two plugins or two entries of config claim is not served at all.
type Set[T any] struct {
	group   string
	all     map[string][]Entry[T]
	later   map[string]func() (T, error)
	reasons map[string]string
	rest    func(*Set[T])
	once    sync.Once
}

// New makes a set; group names it in messages ("step type").
func New[T any](group string) *Set[T] {
	return &Set[T]{group: group, all: map[string][]Entry[T]{}}
}

// Group is what the set holds, in words.
func (s *Set[T]) Group() string { return s.group }

// Add registers v. It panics when a built-in is registered twice: a programmer's mistake.
func (s *Set[T]) Add(name string, o Origin, v T) {
	if o.Kind == Builtin {
		for _, e := range s.all[name] {
			if e.Origin.Kind == Builtin {
				panic(fmt.Sprintf("%s %q registered twice", s.group, name))
			}
		}
	}
	s.all[name] = append(s.all[name], Entry[T]{name, o, v})
}

// Rest sets what adds all further entries, once, when somebody asks for what isn't built in: finding them costs something. It must not read the set.
func (s *Set[T]) Rest(add func(*Set[T])) { s.rest = add }

func (s *Set[T]) fill() {
	s.once.Do(func() {
		if s.rest != nil {
			s.rest(s)
		}
	})
}

// builtin is the built-in entry of a name: nothing else can serve it.
func (s *Set[T]) builtin(name string) (Entry[T], bool) {
	if s.rest == nil {
		return Entry[T]{}, false
	}
	for _, e := range s.all[name] {
		if e.Origin.Kind == Builtin {
			return e, true
		}
	}
	return Entry[T]{}, false
}

// Later registers what costs something to make: it is made when it is first asked for, once. What it fails with is the name's Reason.
// It must not be claimed by a built-in.
func (s *Set[T]) Later(name string, o Origin, make func() (T, error)) {
	if s.later == nil {
		s.later = map[string]func() (T, error){}
	}
	s.later[laterKey(name, o)] = sync.OnceValues(make)
	s.all[name] = append(s.all[name], Entry[T]{Name: name, Origin: o})
}

func laterKey(name string, o Origin) string {
	return strings.Join([]string{name, o.Kind, o.Package, o.Version, o.Where}, "\x00")
}

// Refuse records why an origin that claims a name doesn't serve it ("registered by … but failed to load: …").
func (s *Set[T]) Refuse(name, reason string) {
	if s.reasons == nil {
		s.reasons = map[string]string{}
	}
	if have := s.reasons[name]; have != "" {
		reason = have + "; " + reason
	}
	s.reasons[name] = reason
}

// Reason is why a name that somebody claims isn't served; "" where nobody does.
func (s *Set[T]) Reason(name string) string {
	s.fill()
	if r := s.reasons[name]; r != "" {
		return r
	}
	e, losers := s.pick(name)
	if e == nil && len(losers) > 1 {
		claims := make([]string, len(losers))
		for i, o := range losers {
			claims[i] = strings.TrimSpace(o.Package + " " + o.Version)
			if claims[i] == "" {
				claims[i] = o.String()
			}
		}
		slices.Sort(claims)
		return "registered by " + strings.Join(claims, " and by ") + ", so that none of them serves it"
	}
	if e != nil {
		if _, err := s.made(e); err != nil {
			return err.Error()
		}
	}
	return ""
}

// made is an entry with its value.
func (s *Set[T]) made(e *Entry[T]) (Entry[T], error) {
	out := *e
	make, ok := s.later[laterKey(e.Name, e.Origin)]
	if !ok {
		return out, nil
	}
	var err error
	out.Value, err = make()
	return out, err
}

// Get is the entry that serves name.
func (s *Set[T]) Get(name string) (Entry[T], bool) {
	if e, ok := s.builtin(name); ok {
		return e, true
	}
	s.fill()
	e, _ := s.pick(name)
	if e == nil {
		return Entry[T]{}, false
	}
	out, err := s.made(e)
	return out, err == nil
}

// Origin is where the entry that serves name came from. It makes nothing.
func (s *Set[T]) Origin(name string) (Origin, bool) {
	if e, ok := s.builtin(name); ok {
		return e.Origin, true
	}
	s.fill()
	e, _ := s.pick(name)
	if e == nil {
		return Origin{}, false
	}
	return e.Origin, true
}

// Names are the served names, sorted, those that are made later included.
func (s *Set[T]) Names() []string {
	s.fill()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if e, _ := s.pick(name); e != nil {
			out = append(out, name)
		}
	}
	return out
}

// All are the entries of Names. One whose value can't be made is passed over: whoever names it is told why by Reason.
func (s *Set[T]) All() iter.Seq[Entry[T]] {
	return func(yield func(Entry[T]) bool) {
		for _, name := range s.Names() {
			if e, ok := s.Get(name); ok && !yield(e) {
				return
			}
		}
	}
}

// Conflicts are the names that more than one origin claims, sorted.
func (s *Set[T]) Conflicts() []Conflict {
	s.fill()
	var out []Conflict
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		kept, losers := s.pick(name)
		if len(losers) == 0 {
			continue
		}
		c := Conflict{Name: name, Losers: losers}
		if kept != nil {
			o := kept.Origin
			c.Kept = &o
		}
		out = append(out, c)
	}
	return out
}

// pick answers the entry that serves name, or nil, and the origins of all others.
func (s *Set[T]) pick(name string) (*Entry[T], []Origin) {
	es := s.all[name]
	best := s.best(es)
	var losers []Origin
	for i := range es {
		if i != best {
			losers = append(losers, es[i].Origin)
		}
	}
	if best < 0 {
		return nil, losers
	}
	return &es[best], losers
}

// best is the index of the entry that wins, or -1.
func (s *Set[T]) best(es []Entry[T]) int {
	builtin, config, plugin := -1, -1, -1
	configs, plugins := 0, 0
	for i, e := range es {
		switch e.Origin.Kind {
		case Builtin:
			builtin = i
		case Config:
			config = i
			configs++
		default:
			plugin = i
			plugins++
		}
	}
	switch {
	case builtin >= 0:
		return builtin
	case plugins > 1 || configs > 1:
		return -1
	case configs == 1:
		return config
	default:
		return plugin
	}
}
