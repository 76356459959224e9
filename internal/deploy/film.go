package deploy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/computer"
)

// How computers of runs are filmed.
const (
	filmPause = 2 * time.Second // that a film stands still at most: agents think for long
	filmBytes = 64 << 20        // of a film, about; what comes after is missing but for the last picture
	filmLast  = 5 * time.Second // for the last picture
)

// film is the recording of one computer's screen, in the folder of its run until it is kept.
type film struct {
	server *Server
	path   string
	end    context.CancelFunc
	ended  chan struct{} // closed when the two below are there
	got    computer.Recording
	err    error
}

// films begins to film the computers of an environment, where its run is to be filmed.
func (e *Envs) films(ctx context.Context, r EnvRequest, v *Env) error {
	if !e.boxes.policy(r.Run).Film || !e.recorded(r) {
		return nil
	}
	for _, s := range v.Servers {
		if s.computer == nil || s.away != nil {
			continue
		}
		f, err := startFilm(ctx, s, e.maker.options.Records.Folder(r.Run), filmNote{v.ID, v.Instance, v.Step})
		if err != nil {
			return fmt.Errorf("film the screen of %s: %w", diag.Repr(s.Name), err)
		}
		v.filmed = append(v.filmed, f)
	}
	return nil
}

// startFilm films until stop.
func startFilm(ctx context.Context, s *Server, dir string, about filmNote) (*film, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &film{server: s, path: filepath.Join(dir, filmPrefix+fileName(s.Name)+" "+strings.ToLower(rand.Text()[:8])+".png"), ended: make(chan struct{})}
	if err := f.note(about); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(f.ended)
		way := s.transport()
		defer way.CloseIdleConnections()
		f.got, f.err = computer.Record(ctx, &http.Client{Transport: way}, s.base(), file, computer.RecordOptions{Pause: filmPause, MaxBytes: filmBytes, Stay: true, Last: filmLast})
		f.err = errors.Join(f.err, file.Close())
	}()
	return f, nil
}

// stop ends the film with the screen as it is and waits for it. The computer must still stand.
func (f *film) stop() {
	f.end()
	<-f.ended
}

// keepFilms ends the films of an environment and puts them into the record of its run.
func (e *Envs) keepFilms(ctx context.Context, v *Env) error {
	for _, f := range v.filmed {
		f.end() // all at once
	}
	var errs []error
	for _, f := range v.filmed {
		f.stop()
		if err := e.keepFilm(ctx, v, f); err != nil {
			errs = append(errs, fmt.Errorf("film the screen of %s: %w", diag.Repr(f.server.Name), err))
		}
	}
	v.filmed = nil
	return errors.Join(errs...)
}

// keepFilm keeps what was filmed, also when something was wrong with it in the end.
func (e *Envs) keepFilm(ctx context.Context, v *Env, f *film) error {
	if f.got.Pictures == 0 {
		return errors.Join(f.err, errors.New("it never showed"), f.remove())
	}
	in, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(f.err, err)
	}
	defer in.Close()
	if f.err != nil { // what was wrong may have left half a picture
		if _, err := computer.MendFilm(in); err != nil {
			return errors.Join(f.err, err)
		}
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return errors.Join(f.err, err)
		}
	}
	if _, err = e.keep(context.WithoutCancel(ctx), v, PieceScreen, in); err != nil {
		return errors.Join(f.err, err)
	}
	if f.got.Truncated {
		e.log.Warn("the film of a screen got too large: all but its last picture is missing from there on", "env", v.ID, "computer", f.server.Name, "bytes", f.got.Bytes)
	}
	err = f.remove()
	_ = os.Remove(filepath.Dir(f.path)) // the last one's; other files keep it
	return errors.Join(f.err, err)
}
