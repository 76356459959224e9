package x11

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"github.com/klauspost/compress/zlib"

	"agentenv.internal/agentenv/sdk/computer"
)

// Encoder writes captures as PNG: exact pixels without alpha, several times faster than the standard library on what desktops show. It keeps the
// buffers of one encoding, which a sync.Pool would lose at each collection, and may be used by several at the same time.
type Encoder struct{ idle atomic.Pointer[work] }

// work is what one encoding needs.
type work struct {
	out  bytes.Buffer
	zip  *zlib.Writer
	rows []byte
}

// How much of a picture is tried, and how much of that must go for rows to be stored as they are: photographs hardly get smaller without a filter.
const (
	triedRows = 16
	worthIt   = 0.8
)

// someRows are made and compressed at a time: few enough to stay in a processor's cache.
const someRows = 32

// Encode writes a picture in one of the formats of bytes.
func (e *Encoder) Encode(m computer.Image) ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if m.Format == computer.PNG {
		return m.Data, nil
	}
	if m.Format == computer.JPEG {
		return nil, fmt.Errorf("a capture in %s isn't exact", m.Format)
	}
	w := e.idle.Swap(nil)
	if w == nil {
		zip, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
		if err != nil {
			return nil, fmt.Errorf("encode a capture: %w", err)
		}
		w = &work{zip: zip}
	}
	defer e.idle.Store(w)
	filtered, err := w.hard(m)
	if err != nil {
		return nil, fmt.Errorf("encode a capture: %w", err)
	}
	w.out.Reset()
	w.out.WriteString("\x89PNG\r\n\x1a\n")
	head := binary.BigEndian.AppendUint32(nil, uint32(m.Width))
	head = binary.BigEndian.AppendUint32(head, uint32(m.Height))
	w.chunk("IHDR", append(head, 8, 2, 0, 0, 0)) // 8 bits, RGB
	begin := w.out.Len()
	w.out.WriteString("\x00\x00\x00\x00IDAT")
	if err := w.deflate(m, filtered); err != nil {
		return nil, fmt.Errorf("encode a capture: %w", err)
	}
	body := w.out.Bytes()[begin:]
	binary.BigEndian.PutUint32(body, uint32(len(body)-8))
	w.out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body[4:])))
	w.chunk("IEND", nil)
	return bytes.Clone(w.out.Bytes()), nil
}

func (w *work) chunk(name string, data []byte) {
	w.out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
	begin := w.out.Len()
	w.out.WriteString(name)
	w.out.Write(data)
	w.out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(w.out.Bytes()[begin:])))
}

// deflate compresses the rows of the picture to the end of the output, some at a time.
func (w *work) deflate(m computer.Image, filtered bool) error {
	w.zip.Reset(&w.out)
	for y := 0; y < m.Height; y += someRows {
		w.fill(m, filtered, y, min(y+someRows, m.Height))
		if _, err := w.zip.Write(w.rows); err != nil {
			return err
		}
	}
	return w.zip.Close()
}

// hard tells whether rows from all over the picture get much smaller by themselves; if not, differences to the row above do.
func (w *work) hard(m computer.Image) (bool, error) {
	if m.Height < 4*triedRows {
		return false, nil
	}
	w.out.Reset()
	w.zip.Reset(&w.out)
	total := 0
	for i := range triedRows {
		y := i * m.Height / triedRows
		w.fill(m, false, y, y+1)
		total += len(w.rows)
		if _, err := w.zip.Write(w.rows); err != nil {
			return false, err
		}
	}
	if err := w.zip.Close(); err != nil {
		return false, err
	}
	return float64(w.out.Len()) > worthIt*float64(total), nil
}

// fill makes rows of PNG, a filter's number and RGB, of rows of the picture; filtered ones are differences to the row above.
func (w *work) fill(m computer.Image, filtered bool, from, to int) {
	width := 1 + 3*m.Width
	if need := width * (to - from); cap(w.rows) < need {
		w.rows = make([]byte, need)
	} else {
		w.rows = w.rows[:need]
	}
	per, r, b := 4, 0, 2
	switch m.Format {
	case computer.BGRA, computer.BGRX:
		r, b = 2, 0
	case computer.RGB:
		per = 3
	default:
	}
	for y := from; y < to; y++ {
		row := w.rows[(y-from)*width : (y-from+1)*width]
		src := m.Data[y*m.Width*per : (y+1)*m.Width*per]
		out := row[1:]
		if !filtered || y == 0 {
			row[0] = 0
			for len(src) >= per && len(out) >= 3 {
				out[0], out[1], out[2] = src[r], src[1], src[b]
				src, out = src[per:], out[3:]
			}
			continue
		}
		row[0] = 2 // Up
		above := m.Data[(y-1)*m.Width*per : y*m.Width*per]
		for len(src) >= per && len(out) >= 3 && len(above) >= per {
			out[0], out[1], out[2] = src[r]-above[r], src[1]-above[1], src[b]-above[b]
			src, out, above = src[per:], out[3:], above[per:]
		}
	}
}
