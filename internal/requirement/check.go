package requirement

import "slices"

// Dist is an installed distribution, as its metadata says.
type Dist struct {
	Name     string // as the metadata spells it
	Version  string
	Requires []string // its Requires-Dist lines
}

// Installed is a set of installed distributions.
type Installed interface {
	// Find answers the distribution of a canonical name.
	Find(canonical string) (Dist, bool)
}

// Unmet is a requirement that what is installed doesn't meet.
type Unmet struct {
	Requirement *Requirement // as declared
	// For is what an extra of the requirement needs, where that is what isn't met; nil where it is the requirement itself.
	For *Requirement
	// Name and Installed are what is installed of the package that isn't in range: its name as the metadata spells it, and its version; "" where it is missing.
	Name, Installed string
	// Core marks packages that are agent-env itself, which no installer of plugins changes.
	Core bool
}

// Missing is what isn't met: the requirement itself, or what its extra needs.
func (u Unmet) Missing() *Requirement {
	if u.For != nil {
		return u.For
	}
	return u.Requirement
}

// IsCore says whether a canonical name is one that agent-env itself goes by.
func IsCore(canonical string) bool {
	switch canonical {
	case "agentenv-framework", "agentenv-framework-protocol", "agentenv-protocol", "agent-env":
		return true
	default:
		return false
	}
}

// Check answers which requirements that count in env aren't met, in their order. Extras that a requirement names are looked into once the requirement
// itself is met: everything that the installed distribution requires for the extra alone must be met too.
func Check(reqs []*Requirement, env Environment, in Installed) []Unmet {
	var out []Unmet
	for _, r := range reqs {
		if !r.Applies(env, "") {
			continue
		}
		c := &checker{env: env, in: in, declared: r, seen: map[[2]string]bool{}}
		c.check(r, nil)
		out = append(out, c.out...)
	}
	return out
}

type checker struct {
	env      Environment
	in       Installed
	declared *Requirement
	seen     map[[2]string]bool // by name and extra: packages may name each other's extras in circles
	out      []Unmet
}

// check looks at a requirement; of is nil for the declared one, else the same requirement.
func (c *checker) check(r, of *Requirement) {
	name := r.Canonical()
	d, ok := c.in.Find(name)
	if !ok || !r.Specifiers.Contains(d.Version) {
		u := Unmet{Requirement: c.declared, For: of, Core: IsCore(name)}
		if ok {
			u.Name, u.Installed = d.Name, d.Version
		}
		twice := slices.ContainsFunc(c.out, func(o Unmet) bool { return of != nil && o.For != nil && o.For.Text == of.Text })
		if !twice {
			c.out = append(c.out, u)
		}
		return
	}
	for _, extra := range r.Extras {
		extra = Canonical(extra)
		if c.seen[[2]string{name, extra}] {
			continue
		}
		c.seen[[2]string{name, extra}] = true
		for _, line := range d.Requires {
			dep, err := ParseMetadata(line)
			if err == nil && dep.Marker != nil && dep.Applies(c.env, extra) && !dep.Applies(c.env, "") {
				c.check(dep, dep)
			}
		}
	}
}
