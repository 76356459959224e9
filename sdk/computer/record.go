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
}

// Recording tells of a film.
type Recording struct {
	Pictures  int // 0: the screen was never seen, and the file is empty
	Bytes     int64
	Took      time.Duration // of what was filmed, from the first picture to the end
	Truncated bool          // it got too large, and ends early
}

// Record films the screen of the computer at base until ctx ends, which is no error, or the computer ends. The film is an animated PNG, whole whatever
// error there is; w is an empty file, which the caller closes.
func Record(ctx context.Context, client *http.Client, base string, w io.WriteSeeker, o RecordOptions) (r Recording, err error) {
	const usualFilm, usualSize = 5, 256 << 20
	if o.FPS == 0 {
		o.FPS = usualFilm
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = usualSize
	}
	f := NewFilm(w)
	var first, saved time.Time // saved is the film's clock, which Pause makes slower
	var last time.Time
	onFilm := func(at time.Time) time.Time {
		passed := max(at.Sub(last), 0)
		if o.Pause > 0 {
			passed = min(passed, o.Pause)
		}
		last, saved = at, saved.Add(passed)
		return saved
	}
	for p, perr := range Follow(ctx, client, base, o.FPS) {
		if perr != nil {
			err = perr
			break
		}
		if first.IsZero() {
			first, last, saved = p.At, p.At, p.At
		}
		p.At = onFilm(p.At)
		if err = f.Add(p); err != nil {
			break
		}
		if r.Truncated = f.Size() > o.MaxBytes; r.Truncated {
			break
		}
	}
	if !first.IsZero() {
		r.Took = time.Since(first)
		if cerr := f.Close(onFilm(time.Now())); err == nil {
			err = cerr
		}
	}
	r.Pictures, r.Bytes = f.Pictures(), f.Size()
	return r, err
}
