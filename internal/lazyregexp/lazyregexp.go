// Package lazyregexp holds regular expressions that are compiled when they are first used. A program with a hundred of them would otherwise
// compile all at each start, to answer --version.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New is expr, compiled at the first call. It panics then if expr is none, so a test has to reach each.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
