package appdir

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/sdk/wire"
)

func fault(l *diag.List, n doc.Node, code, format string, args ...any) {
	l.Add(diag.Problem{Pos: n.Pos(), Code: code, Summary: fmt.Sprintf(format, args...)})
}

func noNUL(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); strings.ContainsRune(s, 0) {
		fault(l, n, "app.text", "must hold no NUL character")
	}
}

func isArgv(n doc.Node, l *diag.List) {
	if n.At(0).Text() == "" {
		fault(l, n, "app.argv", "must begin with a program")
	}
}

func isNeeded(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if _, err := path.Match(s, ""); err != nil || strings.Contains(s, "/") && !path.IsAbs(s) || strings.ContainsRune(s, 0) {
		fault(l, n, "app.needs", "must be the name of a program, or a pattern of absolute paths, not %s", diag.Repr(s))
	}
}

func isFolder(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if c := path.Clean(s); wire.CheckPath(c) != nil || c == "." || strings.HasPrefix(c, "..") {
		fault(l, n, "app.skill", "must be a folder of the app's folder, such as skill, not %s", diag.Repr(s))
	}
}

func isPlace(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	switch err := wire.CheckPath(s); {
	case err != nil:
		fault(l, n, "app.paths", "%s can't be a place in the home: %s", diag.Repr(s), err)
	case wire.Below(s, wire.PrivateFolder):
		fault(l, n, "app.paths", "%s is where servers keep what is theirs, and no app's", diag.Repr(s))
	}
}

// apart refuses paths that are the same or one inside the other.
func apart(n doc.Node, l *diag.List) {
	var before []string
	for _, x := range n.Items() {
		p := x.Text()
		if i := slices.IndexFunc(before, func(o string) bool { return wire.Overlap(p, o) }); i >= 0 {
			l.Add(diag.Problem{Pos: x.Pos(), Code: "app.paths", Summary: overlap(p, before[i])})
		}
		before = append(before, p)
	}
}

// overlap says how a path overlaps with one before it.
func overlap(p, before string) string {
	switch {
	case p == before:
		return diag.Repr(p) + " is there twice"
	case wire.Below(p, before):
		return fmt.Sprintf("%s lies inside %s, which is there too", diag.Repr(p), diag.Repr(before))
	}
	return fmt.Sprintf("%s holds %s, which is there too", diag.Repr(p), diag.Repr(before))
}
