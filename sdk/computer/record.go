package computer

import (
	"context"
	"io"
	"net/http"
	"time"
)

// RecordOptions say how a screen is recorded. The zero value works.
type RecordOptions struct {
	FPS      float64       // how often the screen is looked at; 0: 5
	Pause    time.Duration // how long the film stands still at most where nothing happened; 0: as long as that took
	MaxBytes int64         // about how large the film gets; 0: 256 MB
	// Stay goes on when the stream ends or fails, as that of a driver that is started again does, until ctx ends.
	Stay bool
	// Last is how long the end may take to look at the screen once more, so that what changed in the last moment is in the film, and the end of one that
	// got too large; 0: nobody looks.
	Last time.Duration
}

// Recording tells of a film.
type Recording struct {
	Pictures  int // 0: the screen was never seen, and the file is empty
	Bytes     int64
	Took      time.Duration // of what was filmed, from the first picture to the end
	Truncated bool          // it got too large, and what came after is missing
}

// Record films the screen of the computer at base until ctx ends, which is no error, or the computer ends. The film is an animated PNG, whole whatever
// error there is; w is an empty file, which the caller closes.
func Record(ctx context.Context, client *http.Client, base string, w io.WriteSeeker, o RecordOptions) (Recording, error) {
	const usualFilm, usualSize = 5, 256 << 20
	if o.FPS == 0 {
		o.FPS = usualFilm
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = usualSize
	}
	r := recorder{o: o, film: NewFilm(w)}
	lost, err := r.follow(ctx, client, base)
	for o.Stay && err == nil && !r.full && ctx.Err() == nil {
		const again = 500 * time.Millisecond
		select {
		case <-ctx.Done():
		case <-time.After(again):
			lost, err = r.follow(ctx, client, base)
		}
	}
	if o.Last > 0 && err == nil {
		if r.full {
			<-ctx.Done() // the end of what is filmed is still to come
		}
		err = r.look(ctx, client, base)
	}
	if cerr := r.close(); err == nil {
		err = cerr
	}
	if err == nil && !o.Stay {
		err = lost
	}
	return r.tell(), err
}

// recorder is a film under way.
type recorder struct {
	o     RecordOptions
	film  *Film
	first time.Time // by the clock of the screen
	last  time.Time
	saved time.Time // last by the clock of the film, which Pause makes slower
	took  time.Duration
	full  bool
}

// follow films a stream until it ends; lost is what it ended with, err what is wrong with the film.
func (r *recorder) follow(ctx context.Context, client *http.Client, base string) (lost, err error) {
	for p, perr := range Follow(ctx, client, base, r.o.FPS) {
		if perr != nil {
			return perr, nil
		}
		if err := r.add(p); err != nil {
			return nil, err
		}
		if r.full = r.film.Size() > r.o.MaxBytes; r.full {
			break
		}
	}
	return nil, nil
}

// look films the screen as it is, once the time to film is over. A screen that shows nothing any more is no error.
func (r *recorder) look(ctx context.Context, client *http.Client, base string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Last)
	defer cancel()
	for p, err := range Follow(ctx, client, base, r.o.FPS) {
		if err != nil {
			return nil //nolint:nilerr // the computer is gone
		}
		return r.add(p)
	}
	return nil
}

func (r *recorder) add(p Piece) error {
	if r.first.IsZero() {
		r.first, r.last, r.saved = p.At, p.At, p.At
	}
	p.At = r.onFilm(p.At)
	return r.film.Add(p)
}

// onFilm is a time by the film's clock.
func (r *recorder) onFilm(at time.Time) time.Time {
	passed := max(at.Sub(r.last), 0)
	if r.o.Pause > 0 {
		passed = min(passed, r.o.Pause)
	}
	r.last, r.saved = at, r.saved.Add(passed)
	return r.saved
}

// close ends the film.
func (r *recorder) close() error {
	if r.first.IsZero() {
		return nil
	}
	r.took = time.Since(r.first)
	return r.film.Close(r.onFilm(time.Now()))
}

func (r *recorder) tell() Recording {
	return Recording{r.film.Pictures(), r.film.Size(), r.took, r.full}
}
