// Package verdicts holds bundle folders, well and badly made, and what the Python peer says of each: whether it takes the folder, how many problems
// it names, and where. The package's test wants the same of this program, save for what deviations.go lists with a reason.
//
// An input is a folder as data. A place is the part of a problem's line before its sentence: "artifacts/x: artifact.toml". The peer's sentences are
// neither kept nor compared. The renew program runs the peer and writes testdata/verdicts.json.
package verdicts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Input is a bundle folder and how it is run.
type Input struct {
	Name string
	// Row names what it shows: "E10" and "U3" are rows of the table of refusals of environments and universes, "R" one of the table of malformed bundles.
	Row   string
	Files Tree
	Args  []string // beside "run . --dry-run"
	// Dir is the folder's name below the home folder; "" is "b".
	Dir string
	// Bundle is what the command names, seen from the folder; "" is ".".
	Bundle string
	// Before is a bundle that is run first, so that the store holds what it writes.
	Before Tree
	// CLI marks what only the whole program can judge.
	CLI bool
}

// Inputs are all inputs, sorted into families. The slice is the caller's.
func Inputs() []Input {
	return slices.Concat(
		layouts(), names(), declared(), folders(), links(),
		artifacts(), images(), commands(), skills(), environments(), universes(),
		tasks(), steps(), references(), outputs(), evals(),
		envs(), multis(), agents(), aliases(), flags(), mixtures(),
	)
}

// Digest tells one state of an input from another, so that a verdict given on another state is noticed.
func (in Input) Digest() string {
	b, err := json.Marshal(struct {
		Files, Before map[string]string
		Args          []string
		Dir, Bundle   string
	}{in.Files.quoted(), in.Before.quoted(), in.Args, in.Dir, in.Bundle})
	if err != nil {
		panic(err) // strings alone can't fail
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}

// Selected are the values that the arguments give a flag.
func (in Input) Selected(flag string) []string {
	var out []string
	for i := 1; i < len(in.Args); i++ {
		if in.Args[i-1] == flag {
			out = append(out, in.Args[i])
		}
	}
	return out
}

// Verdict is what a program does with a bundle.
type Verdict string

// Verdicts.
const (
	Accept Verdict = "accept" // exit 0
	Refuse Verdict = "refuse" // exit 1, with problems
	Usage  Verdict = "usage"  // exit 2
	Crash  Verdict = "crash"  // exit 1, with a stack trace
)

// Golden is what the peer says of an input.
type Golden struct {
	Input    string   `json:"input"` // digest of the input it was given on
	Verdict  Verdict  `json:"verdict"`
	Exit     int      `json:"exit"`
	Problems int      `json:"problems"`
	Places   []string `json:"places"` // sorted, each once; "" is a problem without a place
}

// GoldenOf reads the verdict out of what a run of the peer left. home is shown as "$H".
func GoldenOf(in Input, exit int, stderr, home string) Golden {
	g := Golden{Input: in.Digest(), Exit: exit, Places: []string{}}
	switch {
	case exit == 0:
		g.Verdict = Accept
		return g
	case exit == 2:
		g.Verdict = Usage
		return g
	case strings.Contains(stderr, "Traceback (most recent call last)"):
		g.Verdict = Crash
		return g
	}
	g.Verdict = Refuse
	lines := Problems(stderr)
	g.Problems = len(lines)
	g.Places = Places(lines, home)
	return g
}
