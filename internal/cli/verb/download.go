package verb

import (
	"context"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/term"
)

// Download shows how much of something has come in. The caller calls done at the end, whatever came of it.
func Download(ctx context.Context, p *Program, label string) (progress func(done, total int64), end func()) {
	shown := p.Streams.NewProgress(ctx)
	bar := shown.Bar(label, 0, term.Bytes)
	var last atomic.Int64
	return func(done, total int64) {
			bar.SetTotal(total)
			bar.Add(done - last.Swap(done))
		}, func() {
			bar.Done()
			shown.Close()
		}
}
