package runview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
)

// record is a file of --output-dir: what runs show --json prints.
type record struct {
	verb.Format
	Run runlog.Record `json:"run"`
}

// makeOutput makes the folder of --output-dir, so that one that can't be is refused before anything runs.
func (o *Flags) makeOutput() error {
	if o.output == "" || o.DryRun {
		return nil
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return fmt.Errorf("--output-dir: %w", err)
	}
	return nil
}

// Save writes the records of runs into --output-dir, a file each, also of those that were cancelled.
func (o *Flags) Save(ctx context.Context, p *verb.Program, sum *bundlerun.Summary) error {
	if o.output == "" || o.DryRun {
		return nil
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	log, err := a.RunLog(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range sum.Runs {
		if !r.Started {
			continue
		}
		rec, err := runlog.Load(ctx, log, r.ID)
		if err == nil {
			err = atomicfile.Write(filepath.Join(o.output, ref.Last(r.ID)+".json"), 0o644, func(w io.Writer) error {
				return json.NewEncoder(w).Encode(record{verb.V1(), rec})
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write the record of %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}
