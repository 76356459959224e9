package computer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Truncater is a file that can be written, read and cut off, as *os.File.
type Truncater interface {
	io.ReadWriteSeeker
	Truncate(size int64) error
}

// ErrNoFilm: a file isn't the beginning of a film.
var ErrNoFilm = errors.New("is no film")

// MendFilm makes a film whole that a Film began and nobody closed, since its process was killed or its disk was full: what comes after the last picture that is whole is cut
// off, and the end is written. It tells how many pictures there are; 0 of a file that is empty or holds none whole, which stays as it is. The last picture stands
// to the end, however long. A film that is whole stays the same. An error is ErrNoFilm, or the file's.
func MendFilm(f Truncater) (pictures int, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("mend a film: %w", err)
	}
	end, pictures, err := wholeFilm(f)
	if err != nil || pictures == 0 {
		return 0, err
	}
	fix := Film{w: f, count: uint32(pictures)}
	if err = fix.patch(pngHeader, fix.control(nil)); err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err == nil {
		_, err = f.Write(chunk(nil, "IEND", nil))
	}
	if err != nil {
		return 0, fmt.Errorf("mend a film: %w", err)
	}
	return pictures, nil
}

// wholeFilm is where the last picture ends of those that are whole, and their number. Of what the film counts itself no picture lacks data.
func wholeFilm(r io.Reader) (end int64, pictures int, err error) {
	in := chunks{r: r}
	head := make([]byte, len(pngSignature))
	if _, err := io.ReadFull(r, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, fmt.Errorf("mend a film: %w", err)
	}
	in.at = int64(len(head))
	name, _, more, err := in.next()
	if err != nil || !more {
		return 0, 0, err
	}
	if string(head) != pngSignature || name != "IHDR" {
		return 0, 0, fmt.Errorf("the file %w", ErrNoFilm)
	}
	name, body, more, err := in.next()
	if err != nil || !more {
		return 0, 0, err
	}
	if name != "acTL" || len(body) != 8 {
		return 0, 0, fmt.Errorf("the file %w", ErrNoFilm)
	}
	counted := int(min(binary.BigEndian.Uint32(body), 1<<30))
	begun, data := 0, false
	for {
		before := in.at
		name, _, more, err := in.next()
		if err != nil {
			return 0, 0, err
		}
		if !more || name == "fcTL" || name == "IEND" {
			if begun > 0 && data {
				end, pictures = before, begun
			}
			if !more || name == "IEND" || begun == counted {
				return end, pictures, nil
			}
			begun, data = begun+1, false
			continue
		}
		if begun == 0 || name != "IDAT" && name != "fdAT" {
			return end, pictures, nil
		}
		data = true
	}
}

// chunks reads those of a PNG.
type chunks struct {
	r  io.Reader
	at int64 // behind the last whole one
}

// next is the next chunk; more is false where the file ends, or a chunk isn't whole.
func (c *chunks) next() (name string, body []byte, more bool, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return "", nil, false, notEnd(err)
	}
	var b bytes.Buffer
	n := int64(binary.BigEndian.Uint32(head[:])) + 4
	if _, err := io.CopyN(&b, c.r, n); err != nil { // not made at once: the length may be anything
		return "", nil, false, notEnd(err)
	}
	body = b.Bytes()[:n-4]
	if crc32.Update(crc32.ChecksumIEEE(head[4:]), crc32.IEEETable, body) != binary.BigEndian.Uint32(b.Bytes()[n-4:]) {
		return "", nil, false, nil
	}
	c.at += int64(len(head)) + n
	return string(head[4:]), body, true, nil
}

// notEnd is err unless it says that the file ended.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("mend a film: %w", err)
}
