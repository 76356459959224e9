package computer

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"iter"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Piece is what a computer's stream tells of its screen: a picture, and where on the screen it replaces what was there.
type Piece struct {
	At     time.Time
	Screen Size
	Place  image.Point // of the upper left corner
	PNG    []byte      // 8 bits a channel, opaque
}

const mostPiece = 64 << 20 // bytes of a picture

// Follow reads the screen of the computer at base, an URL such as http://127.0.0.1:18765, as it changes: the whole of it at first, then pieces, looked
// for fps times a second (0: 10). It ends with ctx, when the computer ends, or after an error, which is the last thing it gives.
func Follow(ctx context.Context, client *http.Client, base string, fps float64) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		parts, end, err := open(ctx, client, base, fps)
		if err != nil {
			if ctx.Err() == nil {
				yield(Piece{}, err)
			}
			return
		}
		defer end()
		for {
			p, err := next(parts)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // the stream has no other end
				return
			case err != nil:
				yield(Piece{}, fmt.Errorf("watch the screen: %w", err))
				return
			case !yield(p, nil):
				return
			}
		}
	}
}

// open asks for a stream of changes.
func open(ctx context.Context, client *http.Client, base string, fps float64) (parts *multipart.Reader, end func(), err error) {
	if fps == 0 {
		fps = usualFPS
	}
	url := strings.TrimSuffix(base, "/") + LivePath + "?changes=1&fps=" + strconv.FormatFloat(fps, 'g', -1, 64)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the screen: %w", err)
	}
	resp, err := client.Do(r) //nolint:bodyclose // end does
	if err != nil {
		return nil, nil, fmt.Errorf("watch the screen: %w", err)
	}
	end = func() { _ = resp.Body.Close() }
	if resp.StatusCode != http.StatusOK {
		defer end()
		const some = 300
		b, _ := io.ReadAll(io.LimitReader(resp.Body, some)) // what it said is more than nothing
		return nil, nil, fmt.Errorf("watch the screen: it answered %d: %s", resp.StatusCode, strings.TrimSpace(string(b)))
	}
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/x-mixed-replace" || params["boundary"] == "" {
		defer end()
		return nil, nil, fmt.Errorf("watch the screen: this is no stream of a computer (%q)", resp.Header.Get("Content-Type"))
	}
	return multipart.NewReader(resp.Body, params["boundary"]), end, nil
}

// next reads a part of a stream.
func next(parts *multipart.Reader) (Piece, error) {
	part, err := parts.NextRawPart()
	if err != nil {
		return Piece{}, err
	}
	p := Piece{}
	if p.At, err = time.Parse(time.RFC3339Nano, part.Header.Get(LiveTime)); err != nil {
		return Piece{}, fmt.Errorf("%s: %w", LiveTime, err)
	}
	if p.Screen.Width, p.Screen.Height, err = pair(part.Header.Get(LiveScreen), "x"); err != nil {
		return Piece{}, fmt.Errorf("%s: %w", LiveScreen, err)
	}
	if p.Place.X, p.Place.Y, err = pair(part.Header.Get(LiveAt), ","); err != nil {
		return Piece{}, fmt.Errorf("%s: %w", LiveAt, err)
	}
	if p.PNG, err = io.ReadAll(io.LimitReader(part, mostPiece+1)); err != nil {
		return Piece{}, err
	}
	if len(p.PNG) > mostPiece {
		return Piece{}, errors.New("a picture is too long")
	}
	return p, nil
}

// pair reads two numbers from 0 on.
func pair(s, sep string) (a, b int, err error) {
	x, y, ok := strings.Cut(s, sep)
	a, err1 := strconv.Atoi(x)
	b, err2 := strconv.Atoi(y)
	if !ok || err1 != nil || err2 != nil || a < 0 || b < 0 {
		return 0, 0, fmt.Errorf("%q isn't two numbers", s)
	}
	return a, b, nil
}
