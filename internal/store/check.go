package store

import (
	"fmt"

	"agentenv.internal/agentenv/internal/ref"
)

// MaxInline is the largest object, in bytes, that rides in a commit; larger ones become files.
const MaxInline = 64 << 10

// DefaultLimit is how many documents a page holds when the query doesn't say.
const DefaultLimit = 100

// Change is one call of Stage.Doc or Stage.Delete. Implementations keep them in order.
type Change struct {
	Doc    Doc
	Cond   Cond
	Delete bool // of Doc.Kind, Doc.ID and Doc.Version (0: every version)
}

// Check tells whether the change may be made when latest is the newest version there is (0: none).
// Its error names the document; it is ErrConflict when reading and planning again may help.
func (c Change) Check(latest int) error {
	d := c.Doc
	switch {
	case d.Kind == "" || d.ID == "":
		return fmt.Errorf("a document without a kind or an id (%q, %q)", d.Kind, d.ID)
	case c.Delete:
		return nil
	case d.Version < 1:
		return fmt.Errorf("%s %s: version %d; versions count from 1", d.Kind, d.ID, d.Version)
	case c.Cond.Any:
		if d.Version <= latest {
			return fmt.Errorf("%s %s version %d: version %d is there already: %w", d.Kind, d.ID, d.Version, latest, ErrConflict)
		}
	case d.Version != c.Cond.Latest+1:
		return fmt.Errorf("%s %s: version %d can't follow version %d", d.Kind, d.ID, d.Version, c.Cond.Latest)
	case latest != c.Cond.Latest:
		return fmt.Errorf("%s %s version %d: version %d was to be the latest, and it is version %d: %w",
			d.Kind, d.ID, d.Version, c.Cond.Latest, latest, ErrConflict)
	}
	return nil
}

// Dangling is the error of a document that names an object which the store doesn't hold.
func Dangling(d Doc, missing ref.Digest) error {
	return fmt.Errorf("%s %s version %d names the object %s: %w", d.Kind, d.ID, d.Version, missing, ErrNotFound)
}
