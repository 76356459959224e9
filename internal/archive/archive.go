// Package archive unpacks and packs trees of files: tar, tar.gz, tar.zst and zip. It is the one extractor of the program.
//
// An archive from outside can leave nothing but plain files, folders and links that stay inside, below the folder it is unpacked into, and no
// more of them than Limits allow. A member that would do something else is refused alone, by name, and the rest is unpacked; a broken limit
// ends the work. Nothing is ever written through a link: links are made last. Owners are not kept, but for layers of images (Options.Layer).
//
// What is unpacked is not synced, and stays when an error ends the work: unpack into a folder that can be thrown away.
package archive

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Format is how an archive is written.
type Format uint8

const (
	Tar Format = iota
	TarGzip
	TarZstd
	Zip
)

func (f Format) String() string { return [...]string{"tar", "tar.gz", "tar.zst", "zip"}[f] }

// sniff tells the format by the first bytes of an archive. Old tar formats have no mark, so tar is what nothing else is.
func sniff(head []byte) Format {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return TarGzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return TarZstd
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return Zip
	default:
		return Tar
	}
}

// ErrLimit is in every error that a broken limit makes.
var ErrLimit = errors.New("the archive is larger than allowed")

// Limits bound what an archive may unpack to. A zero field means its default.
type Limits struct {
	Bytes   int64 // of all files together; 4 GiB
	Entries int   // members of any kind; 200,000
	Depth   int   // folders above a member; 64
	// Ratio is how many bytes one packed byte may become, looked at from 16 MiB on; 1000.
	Ratio int64
}

func (l Limits) filled() Limits {
	return Limits{
		Bytes:   cmp.Or(l.Bytes, 4<<30),
		Entries: cmp.Or(l.Entries, 200_000),
		Depth:   cmp.Or(l.Depth, 64),
		Ratio:   cmp.Or(l.Ratio, 1000),
	}
}

// ratioFrom is the size below which no ratio is looked at: small files of zeros are no bombs.
const ratioFrom = 16 << 20

// Options say what is kept. The zero value is for archives of strangers.
type Options struct {
	Limits
	// Strict makes any refused member an error that names all of them.
	Strict bool
	// NoLinks refuses symbolic links. Otherwise those are kept whose target is relative and stays inside.
	NoLinks bool
	// KeepSetuid keeps the setuid, setgid and sticky bits, which are dropped otherwise.
	KeepSetuid bool
	// KeepClashes unpacks names that differ only in case or in Unicode form, which are refused otherwise: on some file systems they are one file.
	KeepClashes bool
	// Xattrs keeps extended attributes of the user namespace where the file system has them.
	Xattrs bool
	// Times keeps modification times.
	Times bool
	// Overwrite replaces files that exist; otherwise such members are refused.
	Overwrite bool
	// Refuse may refuse a member by its name: it answers why, or "". nil refuses none.
	Refuse func(name string, dir bool) string
	// Layer reads a tar as one layer of an image, whose root it is: see Layer. nil reads it as a tree of files.
	Layer *Layer
}

// Refused is a member that was left out.
type Refused struct {
	Name string `json:"name"` // as the archive spells it, cut after 200 bytes
	Why  string `json:"why"`
}

func (r Refused) String() string { return fmt.Sprintf("%q: %s", r.Name, r.Why) }

// Report is what unpacking or packing did.
type Report struct {
	Files, Dirs, Links int
	Bytes              int64
	// Refused are the first thousand members that were left out; Left counts all.
	Refused []Refused
	Left    int
	// Of a layer: Implied are the folders that it has no entry of, outermost first, "" for its root; they are 0755 and the caller's. Devices
	// counts those that were left out, Unowned the members whose owner could not be kept.
	Implied []string
	Devices int
	Unowned int
}

const mostRefused = 1000

func (r *Report) refuse(name, why string) {
	r.Left++
	if len(r.Refused) < mostRefused {
		r.Refused = append(r.Refused, Refused{cut(name), why})
	}
}

func cut(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// strictly is the error of a Strict caller.
func (r *Report) strictly() error {
	if r.Left == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the archive holds %d unsafe members", r.Left)
	if r.Left == 1 {
		b.Reset()
		b.WriteString("the archive holds an unsafe member")
	}
	for i, m := range r.Refused {
		if i == 10 {
			fmt.Fprintf(&b, "\n  and %d more", r.Left-i)
			break
		}
		b.WriteString("\n  " + m.String())
	}
	return errors.New(b.String())
}

// counter counts what is read through it.
type counter struct {
	r     io.Reader
	n     int64
	ended bool // at the end of r
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	c.ended = errors.Is(err, io.EOF)
	return n, err
}
