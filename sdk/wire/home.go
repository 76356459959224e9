package wire

import (
	"regexp"
	"strings"
	"sync"
)

// PrivateFolder is the folder of a computer's home that holds what servers keep there; it is no data.
const PrivateFolder = ".agentenv"

var appName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })

// IsAppName tells whether an app of a computer may be called so: its name is a segment of URLs and the name of files.
func IsAppName(s string) bool { return appName().MatchString(s) }

// Below tells whether a path is another or lies below it, by segments.
func Below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// Overlap tells whether one of two paths is the other or lies below it.
func Overlap(a, b string) bool { return Below(a, b) || Below(b, a) }
