package computer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	"image/png"
	"io"
	"math"
	"time"
)

// Film writes what a screen showed as an animated PNG, which browsers play as they show any image: exact pixels, of each moment only what changed, once
// through. After every Add the file has all that was added; its end, which Close writes, MendFilm writes too.
type Film struct {
	w      io.WriteSeeker
	screen Size // of the film
	shown  Size // of the pieces
	last   filmed
	at     int64 // where the file has last's control chunk
	count  uint32
	order  uint32
	size   int64
}

const (
	pngSignature = "\x89PNG\r\n\x1a\n"
	pngHeader    = 8 + 4 + 4 + 13 + 4 // signature and IHDR
)

// NewFilm begins a film on an empty file. Its size is that of the first piece's screen; what a larger screen shows later is cut off.
func NewFilm(w io.WriteSeeker) *Film { return &Film{w: w} }

// Size is how many bytes were written.
func (f *Film) Size() int64 { return f.size }

// Pictures is how many pictures the film has.
func (f *Film) Pictures() int {
	return int(f.count)
}

// Add puts a piece at the end. The first is of the whole screen.
func (f *Film) Add(p Piece) error {
	if f.size == 0 {
		if err := f.begin(p); err != nil {
			return err
		}
	}
	p, visible, err := f.fit(p)
	if err != nil {
		return fmt.Errorf("film the screen: %w", err)
	}
	if !visible {
		return nil
	}
	if err := f.stood(p.At); err != nil {
		return err
	}
	return f.put(p)
}

// Close ends the film at a time. A film of nothing stays an empty file.
func (f *Film) Close(at time.Time) error {
	if f.count == 0 {
		return nil
	}
	if err := f.stood(at); err != nil {
		return err
	}
	return f.write(chunk(nil, "IEND", nil))
}

func (f *Film) write(b []byte) error {
	n, err := f.w.Write(b)
	if f.size += int64(n); err != nil {
		return fmt.Errorf("film the screen: %w", err)
	}
	return nil
}

// begin writes what comes before pictures.
func (f *Film) begin(p Piece) error {
	if !filmable(p.Screen.Width, p.Screen.Height) {
		return fmt.Errorf("film the screen: it can't be %d×%d", p.Screen.Width, p.Screen.Height)
	}
	f.screen, f.shown = p.Screen, p.Screen
	b := binary.BigEndian.AppendUint32(nil, uint32(f.screen.Width))
	b = binary.BigEndian.AppendUint32(b, uint32(f.screen.Height))
	b = append(b, 8, 2, 0, 0, 0) // 8 bits, RGB
	return f.write(f.control(chunk([]byte(pngSignature), "IHDR", b)))
}

// control appends the chunk that says how many pictures there are.
func (f *Film) control(to []byte) []byte {
	const once = 1
	b := binary.BigEndian.AppendUint32(nil, f.count)
	return chunk(to, "acTL", binary.BigEndian.AppendUint32(b, once))
}

// put writes a picture, of which nobody knows yet how long it stands.
func (f *Film) put(p Piece) error {
	size, data, err := pictureData(p.PNG)
	if err != nil {
		return fmt.Errorf("film the screen: %w", err)
	}
	f.last, f.at = filmed{order: f.next(), size: size, place: p.Place, from: p.At}, f.size
	out := f.last.control(0)
	for _, d := range data {
		if f.count == 0 {
			out = chunk(out, "IDAT", d)
		} else {
			out = chunk(out, "fdAT", append(binary.BigEndian.AppendUint32(nil, f.next()), d...))
		}
	}
	if err := f.write(out); err != nil {
		return err
	}
	f.count++ // once all of it is there, so that a film cut off by a kill counts whole pictures alone
	return f.patch(pngHeader, f.control(nil))
}

// stood says of the last picture how long it stood.
func (f *Film) stood(until time.Time) error {
	if f.count == 0 {
		return nil
	}
	return f.patch(f.at, f.last.control(until.Sub(f.last.from)))
}

// patch writes over what is at a place, and goes back to the end.
func (f *Film) patch(at int64, b []byte) error {
	_, err := f.w.Seek(at, io.SeekStart)
	if err == nil {
		_, err = f.w.Write(b)
	}
	if err == nil {
		_, err = f.w.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return fmt.Errorf("film the screen: %w", err)
	}
	return nil
}

// filmed is what a film says of one picture.
type filmed struct {
	order uint32
	size  image.Point
	place image.Point
	from  time.Time
}

// control is the chunk before a picture's data.
func (p *filmed) control(stood time.Duration) []byte {
	b := binary.BigEndian.AppendUint32(nil, p.order)
	for _, n := range []int{p.size.X, p.size.Y, p.place.X, p.place.Y} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	number, per := delay(stood)
	b = binary.BigEndian.AppendUint16(b, number)
	b = binary.BigEndian.AppendUint16(b, per)
	return chunk(nil, "fcTL", append(b, 0, 0)) // stays, over what was there
}

func (f *Film) next() uint32 {
	f.order++
	return f.order - 1
}

// fit makes a piece one of the film's screen; it may be wholly outside of it.
func (f *Film) fit(p Piece) (Piece, bool, error) {
	size, _, err := pictureData(p.PNG)
	if err != nil {
		return p, false, err
	}
	fresh := p.Screen != f.shown // then it is of the whole screen
	f.shown = p.Screen
	all := image.Rect(0, 0, f.screen.Width, f.screen.Height)
	box := image.Rectangle{Min: p.Place, Max: p.Place.Add(size)}
	if !fresh && box.In(all) {
		if f.count == 0 && box != all {
			return p, false, errors.New("the first picture isn't of the whole screen")
		}
		return p, true, nil
	}
	to := box.Intersect(all)
	if fresh {
		to = all // black where a smaller screen isn't
	}
	if to.Empty() {
		return p, false, nil
	}
	in, err := png.Decode(bytes.NewReader(p.PNG))
	if err != nil {
		return p, false, err
	}
	out := image.NewRGBA(to)
	draw.Draw(out, to, image.Black, image.Point{}, draw.Src)
	draw.Draw(out, box, in, in.Bounds().Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, out); err != nil {
		return p, false, err
	}
	p.Place, p.PNG = to.Min, b.Bytes()
	return p, true, nil
}

// delay is a time as a fraction of a second.
func delay(d time.Duration) (number, per uint16) {
	d = max(d, 0)
	for _, per := range []uint16{1000, 100, 10} {
		if n := d.Seconds() * float64(per); n <= math.MaxUint16 {
			return uint16(math.Round(n)), per
		}
	}
	return uint16(min(d.Seconds(), math.MaxUint16)), 1
}

// chunk appends a chunk of a PNG.
func chunk(to []byte, name string, data []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	begin := len(to)
	to = append(append(to, name...), data...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[begin:]))
}

// pictureData is the size of a PNG of the one kind that films are of, and its compressed data.
func pictureData(b []byte) (size image.Point, data [][]byte, err error) {
	bad := errors.New("a picture isn't a PNG of 8 bits in RGB")
	rest, ok := bytes.CutPrefix(b, []byte(pngSignature))
	for ok && len(rest) >= 12 {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-12 {
			return size, nil, bad
		}
		body := rest[8 : 8+n]
		switch string(rest[4:8]) {
		case "IHDR":
			if n != 13 || !bytes.Equal(body[8:], []byte{8, 2, 0, 0, 0}) {
				return size, nil, bad
			}
			size = image.Pt(int(binary.BigEndian.Uint32(body)), int(binary.BigEndian.Uint32(body[4:])))
		case "IDAT":
			data = append(data, body)
		default:
		}
		rest = rest[12+n:]
	}
	if !filmable(size.X, size.Y) || data == nil {
		return size, nil, bad
	}
	return size, data, nil
}

// filmable tells whether a size is one that screens have: pictures are decoded in memory.
func filmable(w, h int) bool {
	const side, area = 1 << 14, 1 << 26
	return w > 0 && h > 0 && w <= side && h <= side && w*h <= area
}
