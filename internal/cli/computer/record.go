package computer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/sdk/computer"
)

type recordOptions struct {
	file   string
	length time.Duration
	record computer.RecordOptions
	json   *bool
}

func newRecord(p *verb.Program) *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "record URL",
		Short: "Film the screen of a computer",
		Long: `Films the screen of the computer whose driver answers at URL until it is interrupted, --for is over, or the computer ends. The film is an animated PNG
of exact pixels, which browsers play as they show any image, and whose size is what changed on the screen. It watches and sends no input.`,
		Example: "  agent-env computer record http://127.0.0.1:18765 -o run.png --for 1m --pause 2s",
		Args:    verb.Args("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return record(cmd.Context(), p, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "output", "o", "", "the `FILE` to write, which must not be there yet")
	f.DurationVar(&o.length, "for", 0, "how `LONG` to film; until interrupted unless given")
	f.Float64Var(&o.record.FPS, "fps", 5, "how often a second to look, from 0.1 to 30")
	f.DurationVar(&o.record.Pause, "pause", 0, "how `LONG` the film stands still at most where nothing happened; as long as that took unless given")
	f.Int64Var(&o.record.MaxBytes, "max-bytes", 256<<20, "end the film when it has this many `BYTES`")
	o.json = verb.JSONFlag(cmd, "what was filmed")
	return cmd
}

// recorded is what --json prints.
type recorded struct {
	verb.Format
	File      string  `json:"file"`
	Pictures  int     `json:"pictures"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
	Truncated bool    `json:"truncated"`
}

func record(ctx context.Context, p *verb.Program, base string, o recordOptions) (err error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return verb.Usagef("%q is no URL of a computer: want one such as http://127.0.0.1:18765", base)
	}
	if o.file == "" {
		return verb.Usagef("--output is missing: name the file to write")
	}
	const readable = 0o644
	f, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, readable)
	if err != nil {
		return fmt.Errorf("write the film: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	within := ctx
	if o.length > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, o.length)
		defer cancel()
	}
	r, err := computer.Record(within, http.DefaultClient, base, f, o.record)
	if r.Pictures == 0 {
		if err == nil {
			err = errors.New("nothing was filmed: the screen didn't show")
		}
		return errors.Join(err, os.Remove(o.file))
	}
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(recorded{verb.V1(), o.file, r.Pictures, r.Bytes, r.Took.Seconds(), r.Truncated})
	}
	p.Streams.Printf("%s: %d pictures of %s, %d bytes\n", o.file, r.Pictures, r.Took.Round(time.Second/10), r.Bytes)
	if r.Truncated {
		p.Streams.Note("the film ends early: it reached --max-bytes")
	}
	return nil
}
