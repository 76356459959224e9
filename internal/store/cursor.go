package store

import (
	"errors"
	"strconv"
	"strings"
)

// Cursor is what Page.Next spells: where a page ended, and what the store held when its first page was read, so that
// writes in between neither repeat nor hide a document.
type Cursor struct {
	Snapshot int64 // the newest row of the first page's moment
	Before   int64 // the next page holds older rows than this
}

func (c Cursor) String() string {
	return strconv.FormatInt(c.Snapshot, 36) + "." + strconv.FormatInt(c.Before, 36)
}

var errCursor = errors.New("this is no page of a list; take the value from the page before")

// ParseCursor reads what Cursor.String spelled.
func ParseCursor(s string) (Cursor, error) {
	a, b, ok := strings.Cut(s, ".")
	if !ok {
		return Cursor{}, errCursor
	}
	snap, err1 := strconv.ParseInt(a, 36, 64)
	before, err2 := strconv.ParseInt(b, 36, 64)
	if err1 != nil || err2 != nil || snap < 0 || before < 0 {
		return Cursor{}, errCursor
	}
	return Cursor{snap, before}, nil
}
