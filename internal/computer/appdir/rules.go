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
	case Below(s, Private):
		fault(l, n, "app.paths", "%s is where servers keep what is theirs, and no app's", diag.Repr(s))
	}
}

// apart refuses paths that are the same or one inside the other.
func apart(n doc.Node, l *diag.List) {
	var paths []Path
	for _, p := range n.Items() {
		paths = append(paths, Path{p.Text(), p.Pos()})
	}
	for _, o := range Overlaps(paths) {
		l.Add(diag.Problem{Pos: o.Path.Pos, Code: "app.paths", Summary: o.String()})
	}
}

// Overlap is two paths that are the same, or one inside the other.
type Overlap struct {
	Path  Path // the later one
	Other Path
}

func (o Overlap) String() string {
	switch {
	case o.Path.Path == o.Other.Path:
		return diag.Repr(o.Path.Path) + " is there twice"
	case Below(o.Path.Path, o.Other.Path):
		return fmt.Sprintf("%s lies inside %s, which is there too", diag.Repr(o.Path.Path), diag.Repr(o.Other.Path))
	}
	return fmt.Sprintf("%s holds %s, which is there too", diag.Repr(o.Path.Path), diag.Repr(o.Other.Path))
}

// Overlaps finds in paths, of one app or of several, each one that overlaps with one before it.
func Overlaps(paths []Path) []Overlap {
	var out []Overlap
	for i, p := range paths {
		if j := slices.IndexFunc(paths[:i], func(o Path) bool { return Below(p.Path, o.Path) || Below(o.Path, p.Path) }); j >= 0 {
			out = append(out, Overlap{p, paths[j]})
		}
	}
	return out
}

// Below tells whether a path is another or lies inside it, by segments.
func Below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// Together checks the apps of one computer against each other and the computer's name: no two of one name, none named like the computer, and no path of
// one that overlaps with a path of another.
func Together(computer string, apps []*App) diag.List {
	var l diag.List
	names := map[string]bool{}
	var before []Path
	of := map[Path]string{}
	for _, a := range apps {
		switch {
		case a.Name == computer:
			l.Add(diag.Problem{Where: "app " + diag.Repr(a.Name), Code: "app.name", Summary: "it is named like its computer", Fix: "set environment_name of one of them"})
		case names[a.Name]:
			l.Add(diag.Problem{Where: "app " + diag.Repr(a.Name), Code: "app.name", Summary: "two apps have that name", Fix: "set environment_name of one of them"})
		}
		names[a.Name] = true
		for _, p := range a.Paths {
			for _, o := range Overlaps(append(slices.Clip(before), p)) {
				if o.Path == p {
					l.Add(diag.Problem{Pos: p.Pos, Where: "app " + diag.Repr(a.Name), Code: "app.paths", Summary: fmt.Sprintf("%s overlaps with %s of the app %s", diag.Repr(p.Path), diag.Repr(o.Other.Path), diag.Repr(of[o.Other]))})
				}
			}
		}
		for _, p := range a.Paths {
			of[p] = a.Name
		}
		before = append(before, a.Paths...)
	}
	return l
}
