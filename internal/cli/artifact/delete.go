package artifact

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore/removal"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/term"
)

type deleteOptions struct {
	id      *string
	version *int
	dryRun  bool
	asJSON  *bool
}

func newDelete(p *verb.Program) *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an artifact, or one version of it, unless something uses it",
		Long: `Deletes every version of an artifact, or the one that --version names, with what belongs to it and the bytes that nothing else names. When a task, an
environment, an agent, an eval, another artifact, the ledger of a bundle or a run under way uses what is to be deleted, nothing is deleted, and every reason is told.
A use without a version keeps the latest version. An artifact that a bundle wrote is written again by the next run of the bundle.`,
		Example:           "  agent-env artifact delete notes/seed --version 2 --dry-run\n  agent-env artifact delete notes/seed",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := verb.ID(cmd, args, *o.id)
			if err == nil {
				err = verb.CheckVersion(cmd, *o.version)
			}
			if err != nil {
				return err
			}
			return remove(cmd.Context(), p, o.dryRun, *o.asJSON, func(ctx context.Context, r *removal.Remover) (removal.Removal, error) {
				return r.Delete(ctx, id, *o.version, o.dryRun)
			})
		},
	}
	o.id = verb.IDFlag(cmd, "`ID` of the artifact, in place of the argument")
	completeID(p, cmd)
	o.version = cmd.Flags().Int("version", 0, "the version; all of them when left out")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "tell what would be deleted and what would be kept, and why; delete nothing")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// removed is what --json prints, of delete and of prune.
type removed struct {
	verb.Format
	OK     bool `json:"ok"`
	DryRun bool `json:"dry_run"`
	removal.Removal
}

// remove carries a removal out and prints what came of it.
func remove(ctx context.Context, p *verb.Program, dry, asJSON bool, f func(context.Context, *removal.Remover) (removal.Removal, error)) error {
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	r, err := a.ArtifactRemover(ctx)
	if err != nil {
		return err
	}
	out, err := f(ctx, r)
	if _, refused := diag.From(err); err != nil && (!refused || len(out.Kept) == 0) {
		return err
	}
	if asJSON {
		if jerr := p.Streams.JSON(removed{verb.V1(), err == nil, dry, out}); jerr != nil {
			return jerr
		}
		return err
	}
	if err != nil {
		return err
	}
	s, word := p.Streams, "deleted"
	if dry {
		word = "would delete"
	}
	own := roots(out.Removed)
	for _, v := range out.Removed {
		if !belongs(v, own) {
			s.Printf("%s %s\n", word, term.Clean(v.String()))
		}
	}
	if n := len(out.Removed) - own.lines; n > 0 {
		s.Printf("%s %s that belonged to these\n", word, diag.Count(n, "version"))
	}
	if dry {
		keptLines(p, out)
	}
	what := diag.Count(len(out.Removed), "version") + ", " + diag.Count(out.Objects, "stored file") + ", " + term.Size(out.Bytes)
	switch {
	case dry:
		s.Println("Dry run: nothing is deleted. It would be " + what + ".")
	case len(out.Removed) == 0 && out.Objects == 0:
		s.Note("Nothing was to be deleted.")
	default:
		s.Note("Deleted %s.", what)
	}
	return nil
}

// rooted are the artifacts of a list that belong to nothing else in it.
type rooted struct {
	ids   map[string]bool
	lines int // versions that a list of lines shows: the others belong to them
}

func roots(vs []removal.Version) rooted {
	r := rooted{ids: map[string]bool{}}
	for _, v := range vs {
		if !ref.IsDerived(v.ID) {
			r.ids[v.ID] = true
		}
	}
	for _, v := range vs {
		if !belongs(v, r) {
			r.lines++
		}
	}
	return r
}

// belongs tells whether a version belongs to an artifact of the same list, so that it needs no line of its own.
func belongs(v removal.Version, r rooted) bool {
	if !ref.IsDerived(v.ID) {
		return false
	}
	dir, last := path.Split(v.ID)
	root, _, _ := strings.Cut(last, ref.DerivedMark)
	return r.ids[dir+root]
}

// keptLines tells why what stays is kept: a line for each version, with a few of its reasons. What stays only because it belongs to another has none.
func keptLines(p *verb.Program, out removal.Removal) {
	const most = 3
	var vs []removal.Version
	for _, k := range out.Kept {
		vs = append(vs, k.Version)
	}
	own := roots(vs)
	left := 0
	for _, k := range out.Kept {
		if belongs(k.Version, own) && !slices.ContainsFunc(k.Reasons, func(r removal.Reason) bool { return r.Kind != "artifact" }) {
			left++
			continue
		}
		var why []string
		for _, r := range k.Reasons[:min(len(k.Reasons), most)] {
			why = append(why, r.String())
		}
		if n := len(k.Reasons) - most; n > 0 {
			why = append(why, fmt.Sprintf("and %d more", n))
		}
		p.Streams.Printf("keep %s: %s\n", term.Clean(k.String()), term.Clean(strings.Join(why, "; ")))
	}
	if left > 0 {
		p.Streams.Printf("keep %s that belong to these\n", diag.Count(left, "version"))
	}
}
