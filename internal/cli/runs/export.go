package runs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/term"
)

func newExport(p *verb.Program) *cobra.Command {
	var file string
	var screen int
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run's whole record: events, logs, outputs",
		Long: `Writes all that is on record of a run: the run as runs show has it, its events, and the long outputs that they name. Without -o it is one JSON object on
stdout. With -o the name says the form: .tar, .tar.gz and .tgz are an archive of run.json, events.jsonl, log.txt, objects/ and, where screens were filmed, screens/; .png is the
film of a computer's screen, which browsers play; any other is the JSON object.

A run that is under way is exported as far as it is.`,
		Example:           "  agent-env runs export hello-03hyh3l6 -o hello.tar.gz\n  agent-env runs export 03hyh3l6 > hello.json\n  agent-env runs export 03hyh3l6 -o screen.png",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("screen") && !isFilm(file):
				return verb.Usagef("--screen goes with -o FILE.png")
			case isFilm(file):
				return exportFilm(cmd.Context(), p, args[0], file, screen)
			}
			return export(cmd.Context(), p, args[0], file)
		},
	}
	cmd.Flags().IntVar(&screen, "screen", 0, "with -o FILE.png: the `NUMBER` of the film, where the run has several")
	cmd.Flags().StringVarP(&file, "output", "o", "", "the `FILE` to write; it is replaced when it exists")
	return cmd
}

// exported is a run's record as export writes it.
type exported struct {
	verb.Format
	Run     runlog.Record  `json:"run"`
	Events  []runlog.Event `json:"events"`
	Objects []object       `json:"objects"`
}

// object is a long output that events name by its digest: text where it is some, base64 otherwise.
type object struct {
	Digest string `json:"digest"`
	Size   int    `json:"size"`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
	bytes  []byte
}

func export(ctx context.Context, p *verb.Program, text, file string) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	x, err := gather(ctx, log, s, id)
	if err != nil {
		return err
	}
	if file == "" {
		return p.Streams.JSON(x)
	}
	write := x.json
	switch {
	case strings.HasSuffix(file, ".tar"):
		write = func(w io.Writer) error { return x.tar(p.Streams, w) }
	case strings.HasSuffix(file, ".tar.gz"), strings.HasSuffix(file, ".tgz"):
		write = func(w io.Writer) error {
			z := gzip.NewWriter(w)
			return errors.Join(x.tar(p.Streams, z), z.Close())
		}
	}
	if err := atomicfile.Write(file, 0o644, write); err != nil {
		return err
	}
	p.Streams.Note("Wrote %s: %s, %s", term.Clean(file), diag.Count(len(x.Events), "event"), diag.Count(len(x.Objects), "object"))
	return nil
}

// gather reads the record once, so that all parts of it tell of the same moment.
func gather(ctx context.Context, log runlog.Log, objects store.Objects, id string) (exported, error) {
	sum, err := log.Get(ctx, id)
	if err != nil {
		return exported{}, err
	}
	x := exported{Format: verb.V1(), Events: []runlog.Event{}, Objects: []object{}}
	seen := map[ref.Digest]bool{}
	for e, err := range log.Events(ctx, id, 0) {
		if err != nil {
			return x, err
		}
		x.Events = append(x.Events, e)
		for d := range e.Digests() {
			if seen[d] {
				continue
			}
			seen[d] = true
			o, err := load(ctx, objects, d)
			if errors.Is(err, store.ErrNotFound) {
				continue // a text that looks like a digest
			}
			if err != nil {
				return x, err
			}
			x.Objects = append(x.Objects, o)
		}
	}
	x.Run = runlog.Fold(sum, x.Events)
	return x, nil
}

func load(ctx context.Context, objects store.Objects, d ref.Digest) (object, error) {
	r, _, err := store.OpenVerified(ctx, objects, d)
	if err != nil {
		return object{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return object{}, err
	}
	o := object{Digest: string(d), Size: len(b), bytes: b}
	if utf8.Valid(b) {
		o.Text = string(b)
	} else {
		o.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return o, nil
}

func (x *exported) json(w io.Writer) error { return json.NewEncoder(w).Encode(x) }

// tar writes the record as an archive whose times are the run's own, so that one record makes one archive.
func (x *exported) tar(s *term.Streams, w io.Writer) error {
	at := x.Run.Created
	if n := len(x.Events); n > 0 {
		at = x.Events[n-1].At
	}
	t := tar.NewWriter(w)
	var run, events, log bytes.Buffer
	enc := json.NewEncoder(&run)
	enc.SetIndent("", "  ")
	err := enc.Encode(shown{verb.V1(), x.Run})
	lines := json.NewEncoder(&events)
	for _, e := range x.Events {
		err = errors.Join(err, lines.Encode(e))
		fmt.Fprintf(&log, "%s %s\n", e.At.UTC().Format(time.RFC3339Nano), strings.TrimPrefix(eventLine(s, e), verb.Time(s, e.At)+" "))
	}
	err = errors.Join(err, member(t, "run.json", run.Bytes(), at), member(t, "events.jsonl", events.Bytes(), at), member(t, "log.txt", log.Bytes(), at))
	films := map[string]string{}
	for i, f := range x.Run.Films {
		films[f.Digest] = fmt.Sprintf("screens/%d.png", i+1)
	}
	for _, o := range x.Objects {
		if name := films[o.Digest]; name != "" {
			err = errors.Join(err, member(t, name, o.bytes, at))
			continue
		}
		err = errors.Join(err, member(t, path.Join("objects", strings.TrimPrefix(o.Digest, "sha256:")), o.bytes, at))
	}
	return errors.Join(err, t.Close())
}

func member(t *tar.Writer, name string, b []byte, at time.Time) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(b)), ModTime: at.Truncate(time.Second), Format: tar.FormatPAX})
	if err == nil {
		_, err = t.Write(b)
	}
	return err
}

func isFilm(file string) bool { return strings.HasSuffix(file, ".png") }

// exportFilm writes one film; number counts from 1, and 0 is the only one.
func exportFilm(ctx context.Context, p *verb.Program, text, file string, number int) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	rec, err := runlog.Load(ctx, log, id)
	if err != nil {
		return err
	}
	n := len(rec.Films)
	switch {
	case n == 0:
		return fmt.Errorf("no screen of %s was filmed: run with --record-screen, and deploy a computer", id)
	case number == 0 && n > 1:
		return verb.Usagef("%s has %d films: choose one by --screen 1 to %d", id, n, n)
	case number < 0 || number > n:
		return verb.Usagef("%s has %s, and no --screen %d", id, diag.Count(n, "film"), number)
	}
	f := rec.Films[max(number, 1)-1]
	a, err := p.App()
	if err != nil {
		return err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	in, _, err := store.OpenVerified(ctx, s, ref.Digest(f.Digest))
	if err != nil {
		return fmt.Errorf("read the film: %w", err)
	}
	defer in.Close()
	const readable = 0o644
	if err := atomicfile.Write(file, readable, func(w io.Writer) error { _, err := io.Copy(w, in); return err }); err != nil {
		return err
	}
	p.Streams.Note("Wrote %s: %s of the screen of %s", term.Clean(file), term.Size(f.Size), term.Clean(f.Env))
	return nil
}
