package computer_test

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
)

// someFilm is a film of so many pictures, each with a dot more, and where each of them ends. It has no end.
func someFilm(t testing.TB, pictures int) (film []byte, ends []int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "film.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := computer.NewFilm(f)
	at := time.Unix(1000, 0)
	for i := range pictures {
		p := computer.Piece{At: at.Add(time.Duration(i) * time.Second), Screen: computer.Size{Width: 20, Height: 10}, PNG: plain(t, 20, 10, color.Black)}
		if i > 0 {
			p.Place, p.PNG = image.Pt(i, i), plain(t, 2, 2, color.White)
		}
		if err := to.Add(p); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, to.Size())
	}
	if film, err = os.ReadFile(f.Name()); err != nil {
		t.Fatal(err)
	}
	return film, ends
}

// plain is a PNG of one colour, of the kind that films are of.
func plain(t testing.TB, w, h int, c color.Color) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func mend(t testing.TB, film []byte) ([]byte, int, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "film.png")
	if err := os.WriteFile(path, film, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := computer.MendFilm(f)
	b, rerr := os.ReadFile(path)
	if rerr != nil {
		t.Fatal(rerr)
	}
	return b, n, err
}

// TestMendFilm: wherever a film was cut off, what was whole of it plays; a film that has all of it stays the same.
func TestMendFilm(t *testing.T) {
	t.Parallel()
	film, ends := someFilm(t, 4)
	for cut := range len(film) + 1 {
		want := 0
		for _, end := range ends {
			if int64(cut) >= end {
				want++
			}
		}
		got, n, err := mend(t, film[:cut])
		if err != nil || n != want {
			t.Fatalf("cut off at %d of %v: %d pictures, want %d, %v", cut, ends, n, want, err)
		}
		if n == 0 {
			if !bytes.Equal(got, film[:cut]) {
				t.Errorf("cut off at %d: it isn't as it was", cut)
			}
			continue
		}
		played := readFilm(t, got)
		if len(played.screens) != n || played.screens[n-1].RGBAAt(n-1, n-1) != (color.RGBA{uint8(255 * min(n-1, 1)), uint8(255 * min(n-1, 1)), uint8(255 * min(n-1, 1)), 255}) {
			t.Errorf("cut off at %d: %d pictures", cut, len(played.screens))
		}
		for i := range n - 1 {
			if played.delays[i] != time.Second {
				t.Errorf("picture %d stands for %s", i, played.delays[i])
			}
		}
		if again, m, err := mend(t, got); err != nil || m != n || !bytes.Equal(again, got) {
			t.Errorf("a whole film of %d bytes becomes one of %d, %d pictures, %v", len(got), len(again), m, err)
		}
	}
	// A picture that the film doesn't count yet may lack data.
	uncounted := bytes.Clone(film)
	copy(uncounted[8+25:], computer.AppendChunk(nil, "acTL", []byte{0, 0, 0, 3, 0, 0, 0, 1}))
	if _, n, err := mend(t, uncounted); n != 3 || err != nil {
		t.Errorf("%d pictures, %v", n, err)
	}
	// What is damaged ends it.
	film[ends[1]+20] ^= 1
	if got, n, err := mend(t, film); n != 2 || err != nil || len(readFilm(t, got).screens) != 2 {
		t.Errorf("%d pictures, %v", n, err)
	}
	if _, _, err := mend(t, plain(t, 2, 2, color.White)); !errors.Is(err, computer.ErrNoFilm) {
		t.Errorf("a picture: %v", err)
	}
}

// FuzzMendFilm: whatever a file holds, it is refused or left alone, or becomes a film that needs no mending.
func FuzzMendFilm(f *testing.F) {
	film, ends := someFilm(f, 3)
	f.Add(film)
	f.Add(film[:ends[1]-3])
	f.Add([]byte("\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, n, err := mend(t, b)
		if err != nil || n == 0 {
			if !bytes.Equal(got, b) {
				t.Errorf("it isn't as it was: %v", err)
			}
			return
		}
		if again, m, err := mend(t, got); err != nil || m != n || !bytes.Equal(again, got) {
			t.Errorf("%d pictures, then %d, %v", n, m, err)
		}
	})
}
