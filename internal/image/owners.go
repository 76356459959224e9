package image

import (
	"context"
	"io"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/subid"
)

// owners is which ids the files of trees get, and who may give them.
type owners struct {
	kind   string
	ids    subid.Range // of OwnersSub
	worker string
}

func findOwners(worker string) owners {
	if subid.All() {
		return owners{kind: OwnersAll}
	}
	if worker != "" {
		if r, err := subid.Find(); err == nil {
			return owners{kind: OwnersSub, ids: r, worker: worker}
		}
	}
	return owners{kind: OwnersOne}
}

// String keeps trees of different owners apart in keys.
func (o *owners) String() string {
	if o.kind == OwnersSub {
		return o.kind + o.ids.String()
	}
	return o.kind
}

// do does a job with the right to give files their owners.
func (o *owners) do(ctx context.Context, j *job, in io.Reader, report *archive.Report) error {
	j.OneID = o.kind == OwnersOne
	if o.kind == OwnersSub {
		return o.work(ctx, j, in, report)
	}
	return j.run(ctx, in, report)
}
