package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

// writerBox is a Box whose one command writes text to its stdout in pieces.
type writerBox struct {
	Box
	text  []byte
	piece int
}

func (b writerBox) Exec(_ context.Context, _ Command, stdio [3]*os.File) (Exit, error) {
	for t := b.text; len(t) > 0; {
		n := min(len(t), b.piece)
		if _, err := stdio[1].Write(t[:n]); err != nil {
			return Exit{}, err
		}
		t = t[n:]
	}
	return Exit{}, nil
}

func TestSpill(t *testing.T) {
	text := make([]byte, 10_001)
	for i := range text {
		text[i] = byte(i * 7)
	}
	for _, limit := range []int64{1, 2, 99, 5000, 10_000, 10_001, 20_000, -1} {
		for _, piece := range []int{1, 100, 4096, 20_000} {
			var whole bytes.Buffer
			asked := 0
			r, err := Output(t.Context(), writerBox{text: text, piece: piece}, Command{}, Limits{Stdout: limit, Spill: func(stderr bool) (io.Writer, error) {
				if asked++; stderr {
					t.Error("the empty stream is spilled")
				}
				return &whole, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if long := limit > 0 && limit <= 10_000; r.Stdout.Truncated != long || (asked == 1) != long || asked > 1 {
				t.Errorf("limit %d, piece %d: truncated %v, asked %d times", limit, piece, r.Stdout.Truncated, asked)
			}
			if asked > 0 && (!bytes.Equal(whole.Bytes(), text) || r.Stdout.SpillErr != nil) {
				t.Errorf("limit %d, piece %d: %d bytes were spilled, %v", limit, piece, whole.Len(), r.Stdout.SpillErr)
			}
			if asked > 0 && (!bytes.HasPrefix(text, r.Stdout.Head) || !bytes.HasSuffix(text, r.Stdout.Tail) || r.Stdout.Total != int64(len(text))) {
				t.Errorf("limit %d, piece %d: head and tail are wrong", limit, piece)
			}
		}
	}
	full := errors.New("full")
	r, err := Output(t.Context(), writerBox{text: text, piece: 64}, Command{}, Limits{Stdout: 100, Spill: func(bool) (io.Writer, error) { return nil, full }})
	if err != nil || !errors.Is(r.Stdout.SpillErr, full) || !r.Stdout.Truncated {
		t.Errorf("without a place: %+v, %v", r.Stdout.SpillErr, err)
	}
}
