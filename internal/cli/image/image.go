// Package image holds the verbs about the images that local sandboxes start from.
package image

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/image"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("image", "List, pull and remove the images that local sandboxes start from",
		newList(p), newPull(p), newRemove(p), newPrune(p))
}

func open(ctx context.Context, p *verb.Program) (*image.Store, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, err
	}
	return a.Images(ctx)
}

// complete offers the images that are here.
func complete(p *verb.Program) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		s, err := a.Images(ctx)
		if err != nil {
			return nil, err
		}
		all, err := s.List(ctx)
		var out []cobra.Completion
		for _, e := range all {
			for _, r := range e.Refs {
				out = append(out, cobra.CompletionWithDesc(r, e.Digest))
			}
		}
		return out, err
	}, cobra.ShellCompDirectiveNoFileComp)
}

// removed is what --json prints, of rm and of prune.
type removed struct {
	verb.Format
	Removed []image.Entry `json:"removed"`
	Busy    []image.Entry `json:"busy"`
	Bytes   int64         `json:"bytes"`
	Left    int64         `json:"left"`
}

func (r *removed) add(out image.Pruned) {
	r.Removed, r.Busy = append(r.Removed, out.Images...), append(r.Busy, out.Busy...)
	r.Bytes, r.Left = r.Bytes+out.Bytes, out.Left
}

// name is how people are told of an image.
func name(e image.Entry) string {
	if len(e.Refs) > 0 {
		return e.Refs[0]
	}
	return e.Digest
}
