package runlog

import (
	"bytes"
	"iter"

	"agentenv.internal/agentenv/internal/ref"
)

// Digests yields the digests that the data of an event spells, wherever they stand in it. A log's owner keeps such objects: a run's
// long outputs are named by its events alone.
func (e Event) Digests() iter.Seq[ref.Digest] {
	const prefix = "sha256:"
	return func(yield func(ref.Digest) bool) {
		for b := []byte(e.Data); ; {
			i := bytes.Index(b, []byte(prefix))
			if i < 0 {
				return
			}
			b = b[i:]
			if end := len(prefix) + 64; len(b) >= end {
				if d := ref.Digest(b[:end]); d.Valid() && !yield(d) {
					return
				}
			}
			b = b[len(prefix):]
		}
	}
}
