package artifact

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

type listOptions struct {
	page   verb.Page
	query  artifactstore.Query
	after  string
	typ    string
	asJSON *bool
}

// newList is the list of all artifacts, or of those of a type.
func newList(p *verb.Program, typ string) *cobra.Command {
	o := listOptions{typ: typ}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List stored artifacts, newest first",
		Long: `Lists the latest version of each artifact, newest first. Artifacts that belong to another one, such as the files of a universe, are shown with --all alone.
A longer list is read page by page: with --offset, or with --after and what the page before gave as "next", which neither repeats nor misses what is put
meanwhile.`,
		Example: "  agent-env artifact list --type environment_universe\n  agent-env artifact list --prefix @local/agentenv-framework/ --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, o) },
	}
	f := cmd.Flags()
	if typ == "" {
		f.StringVar(&o.typ, "type", "", "only artifacts of this `TYPE`")
	} else {
		cmd.Short, cmd.Long, cmd.Example = "List stored artifacts of type "+typ+", newest first", "", ""
	}
	f.StringVar(&o.query.Prefix, "prefix", "", "only ids that begin with this `TEXT`")
	f.BoolVar(&o.query.All, "all", false, "show what belongs to other artifacts too")
	pageFlags(cmd, &o.page, &o.after, "artifacts")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// pageFlags are those of a list that can be read on.
func pageFlags(cmd *cobra.Command, page *verb.Page, after *string, many string) {
	verb.PageFlags(cmd, page, many)
	cmd.Flags().StringVar(after, "after", "", "go on after a page, by the `TEXT` that it gave as next")
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Artifacts []artifactstore.Info `json:"artifacts"`
	More      bool                 `json:"more"`           // older artifacts than these exist
	Next      string               `json:"next,omitempty"` // for --after
}

// checkPage refuses a page that can't be.
func checkPage(page verb.Page, after string) error {
	if after != "" && page.Offset > 0 {
		return verb.Usagef("--after and --offset exclude each other")
	}
	return page.Check()
}

func list(ctx context.Context, p *verb.Program, o listOptions) error {
	if err := checkPage(o.page, o.after); err != nil {
		return err
	}
	a, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	q := o.query
	q.Limit, q.Offset, q.After = o.page.Limit, o.page.Offset, o.after
	if o.typ != "" {
		if q.Type, err = a.ArtifactType(o.typ); err != nil {
			return err
		}
	}
	found, err := l.List(ctx, q)
	if err != nil {
		return err
	}
	if *o.asJSON {
		return p.Streams.JSON(listing{verb.V1(), append([]artifactstore.Info{}, found.Artifacts...), found.Next != "", found.Next})
	}
	if len(found.Artifacts) == 0 {
		p.Streams.Note("There are no such artifacts. Store one with: agent-env artifact put TYPE ID PATH")
		return nil
	}
	t := term.NewTable("ARTIFACT", "VERSION", "TYPE", "CREATED", "ABOUT")
	for _, i := range found.Artifacts {
		t.Row(i.ID, "v"+strconv.Itoa(i.Version), i.Type, verb.Time(p.Streams, i.Created), short(i.About))
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	more(p, found.Next, o.page.Offset+len(found.Artifacts), o.after)
	return nil
}

// more tells how to see the rest of a list.
func more(p *verb.Program, next string, seen int, after string) {
	switch {
	case next == "":
	case after != "":
		p.Streams.Note("There are older ones: --after %s shows them.", next)
	default:
		p.Streams.Note("There are older ones: --offset %d shows them.", seen)
	}
}

// short is the first line of a text, not longer than a line of a terminal.
func short(s string) string {
	const most = 60
	r := []rune(s)
	for i, c := range r {
		if c == '\n' || i == most {
			return string(r[:i]) + "…"
		}
	}
	return s
}
