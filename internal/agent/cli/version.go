package cli

import (
	"cmp"
	"fmt"
	"strconv"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Version is major, minor, patch.
type Version [3]int

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Compare orders versions.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v[0], o[0]), cmp.Compare(v[1], o[1]), cmp.Compare(v[2], o[2]))
}

var versionForm = lazyregexp.New(`(?:^|[^0-9.])([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?`)

// ParseVersion finds the first version in what a command says of itself, such as "codex-cli 0.147.0" or "v20.11.1".
func ParseVersion(text string) (Version, bool) {
	m := versionForm().FindStringSubmatch(text)
	if m == nil {
		return Version{}, false
	}
	var v Version
	for i, s := range m[1:] {
		if s != "" {
			v[i], _ = strconv.Atoi(s) // nine digits
		}
	}
	return v, true
}

// Fits of a release.
const (
	Checked = "checked" // within what the profile was checked with
	Older   = "older"   // refused: its events are not read
	Newer   = "newer"   // used, with a note
)

// Fit tells how a release stands to what the profile was checked with.
func (p *Profile) Fit(v Version) string {
	switch {
	case v.Compare(p.From) < 0:
		return Older
	case v.Compare(p.Before) >= 0:
		return Newer
	}
	return Checked
}
