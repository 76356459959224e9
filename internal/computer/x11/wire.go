package x11

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answerTime is how long the server may take for an answer.
const answerTime = 20 * time.Second

// refused is an answer of the server that says no.
type refused struct{ code, major byte }

func (r *refused) Error() string {
	names := []string{"", "request", "value", "window", "pixmap", "atom", "cursor", "font", "match", "drawable", "access", "memory", "color", "context", "id", "name", "length", "support"}
	if int(r.code) < len(names) && r.code > 0 {
		return fmt.Sprintf("the display refused request %d: bad %s", r.major, names[r.code])
	}
	return fmt.Sprintf("the display refused request %d: error %d", r.major, r.code)
}

// wire is a connection that speaks the X protocol, one request at a time. Once it failed, it fails.
type wire struct {
	mu     sync.Mutex
	conn   net.Conn
	seq    uint16
	failed error
	server setup
	ids    uint32 // how many were made
}

// setup is what a server says of itself at first.
type setup struct {
	idBase, idMask uint32
	root           uint32
	firstKey       keycode
	lastKey        keycode
	depth, bits    byte // of the screen's pixels
	littleEndian   bool
}

// dial connects to a display of this machine or another: ":0", "unix:0.0", "host:0". auth is the file that holds what clients show; one that isn't
// there is shown nothing of.
func dial(display, auth string) (*wire, error) {
	host, number, err := parseDisplay(display)
	if err != nil {
		return nil, err
	}
	var c net.Conn
	d := net.Dialer{Timeout: answerTime}
	if host == "" {
		path := "/tmp/.X11-unix/X" + number
		if c, err = d.Dial("unix", path); err != nil {
			c, err = d.Dial("unix", "@"+path) // servers without that folder have it in the abstract alone
		}
	} else {
		n, _ := strconv.Atoi(number) // it is a number
		c, err = d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(6000+n)))
	}
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(auth)
	if err != nil {
		b = nil // the server may ask for nothing
	}
	name, secret := cookie(b, number)
	w := &wire{conn: c}
	if err := w.begin(name, secret); err != nil {
		c.Close()
		return nil, err
	}
	return w, nil
}

func parseDisplay(s string) (host, number string, err error) {
	i := strings.LastIndex(s, ":")
	if i < 0 {
		return "", "", fmt.Errorf("%q names no display: want one such as :0", s)
	}
	host = strings.TrimPrefix(s[:i], "tcp/")
	number, screen, _ := strings.Cut(s[i+1:], ".")
	if _, err := strconv.ParseUint(number, 10, 15); err != nil || screen != "" && screen != "0" {
		return "", "", fmt.Errorf("%q names no display: want one such as :0, and its first screen", s)
	}
	if host == "unix" {
		host = ""
	}
	return host, number, nil
}

// cookie finds what to show to a display of this machine in the bytes of an authority file.
func cookie(file []byte, number string) (name string, secret []byte) {
	const local, wild = 256, 65535
	r := bytes.NewReader(file)
	for {
		var family uint16
		if binary.Read(r, binary.BigEndian, &family) != nil {
			return "", nil
		}
		var fields [4][]byte // address, display, name, data
		for i := range fields {
			var n uint16
			if binary.Read(r, binary.BigEndian, &n) != nil {
				return "", nil
			}
			fields[i] = make([]byte, n)
			if _, err := io.ReadFull(r, fields[i]); err != nil {
				return "", nil
			}
		}
		here := family == wild
		if family == local {
			host, err := os.Hostname()
			here = err == nil && string(fields[0]) == host
		}
		if d := string(fields[1]); here && (d == "" || d == number) && string(fields[2]) == "MIT-MAGIC-COOKIE-1" {
			return string(fields[2]), fields[3]
		}
	}
}

func pad(n int) int { return (4 - n%4) % 4 }

func (w *wire) begin(name string, secret []byte) error {
	b := []byte{'l', 0, 11, 0, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(secret)))
	b = append(b, 0, 0)
	b = append(append(b, name...), make([]byte, pad(len(name)))...)
	b = append(append(b, secret...), make([]byte, pad(len(secret)))...)
	if err := w.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := w.conn.Write(b); err != nil {
		return err
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(w.conn, head); err != nil {
		return err
	}
	body := make([]byte, 4*int(binary.LittleEndian.Uint16(head[6:])))
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return err
	}
	if head[0] != 1 {
		return fmt.Errorf("the display refused: %s", strings.TrimSpace(string(body[:min(int(head[1]), len(body))])))
	}
	var err error
	w.server, err = parseSetup(body)
	return err
}

// parseSetup reads what follows the head of the server's first answer.
func parseSetup(b []byte) (setup, error) {
	short := errors.New("the display's first answer is cut off")
	if len(b) < 32 {
		return setup{}, short
	}
	s := setup{
		idBase: binary.LittleEndian.Uint32(b[4:]), idMask: binary.LittleEndian.Uint32(b[8:]), littleEndian: b[22] == 0,
		firstKey: keycode(b[26]), lastKey: keycode(b[27]),
	}
	vendor := int(binary.LittleEndian.Uint16(b[16:]))
	formats := 32 + vendor + pad(vendor)
	screen := formats + 8*int(b[21])
	if b[20] == 0 || len(b) < screen+40 || s.firstKey > s.lastKey {
		return setup{}, short
	}
	s.root, s.depth = binary.LittleEndian.Uint32(b[screen:]), b[screen+38]
	for f := formats; f < screen; f += 8 {
		if b[f] == s.depth {
			s.bits = b[f+1]
		}
	}
	return s, nil
}

// request begins a request; finish fills its length in.
func request(major, minor byte) []byte { return []byte{major, minor, 0, 0} }

func u16(b []byte, vs ...int) []byte {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	return b
}

func u32(b []byte, vs ...uint32) []byte {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func text(b []byte, s string) []byte { return append(append(b, s...), make([]byte, pad(len(s)))...) }

func finish(b []byte) []byte {
	binary.LittleEndian.PutUint16(b[2:], uint16(len(b)/4))
	return b
}

// ask sends a request that has a reply of at least want bytes.
func (w *wire) ask(req []byte, want int) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(req); err != nil {
		return nil, err
	}
	r, err := w.read(w.seq, nil)
	if err == nil && len(r) < want {
		err = fmt.Errorf("the display answered request %d with %d bytes", req[0], len(r))
	}
	return r, err
}

const getInputFocus = 43

// tell sends a request that has no reply, and hears from the answer to another whether it was done.
func (w *wire) tell(req []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(req, request(getInputFocus, 0)); err != nil {
		return err
	}
	var said error
	if _, err := w.read(w.seq, func(r *refused) { said = r }); err != nil {
		return err
	}
	return said
}

func (w *wire) write(reqs ...[]byte) error {
	if w.failed != nil {
		return w.failed
	}
	var all []byte
	for _, r := range reqs {
		all = append(all, finish(r)...)
		w.seq++
	}
	if err := w.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return w.fail(err)
	}
	if _, err := w.conn.Write(all); err != nil {
		return w.fail(err)
	}
	return nil
}

// read reads up to the reply to a request. Events are dropped; what is refused of the requests before goes to other.
func (w *wire) read(seq uint16, other func(*refused)) ([]byte, error) {
	for {
		head := make([]byte, 32)
		if _, err := io.ReadFull(w.conn, head); err != nil {
			return nil, w.fail(err)
		}
		more := 0
		const generic = 35 // an event of any length
		if head[0] == 1 || head[0]&0x7f == generic {
			more = 4 * int(binary.LittleEndian.Uint32(head[4:]))
		}
		if more > 0 {
			const most = 1 << 28
			if more > most {
				return nil, w.fail(errors.New("the display's answer is too long"))
			}
			head = append(head, make([]byte, more)...)
			if _, err := io.ReadFull(w.conn, head[32:]); err != nil {
				return nil, w.fail(err)
			}
		}
		mine := binary.LittleEndian.Uint16(head[2:]) == seq
		switch {
		case head[0] == 0 && mine:
			return nil, &refused{head[1], head[10]}
		case head[0] == 0 && other != nil:
			other(&refused{head[1], head[10]})
		case head[0] == 1 && mine:
			return head, nil
		}
	}
}

func (w *wire) fail(err error) error {
	w.failed = err
	w.conn.Close()
	return err
}

func (w *wire) close() {
	w.conn.Close() // first: it ends a read that holds the lock
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = net.ErrClosed
}

// newID is a number for something of this client's.
func (w *wire) newID() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return w.server.idBase | w.ids&w.server.idMask
}

// extension is the number of an extension's requests; 0 when the server lacks it.
func (w *wire) extension(name string) (byte, error) {
	const queryExtension = 98
	r, err := w.ask(text(u16(request(queryExtension, 0), len(name), 0), name), 32)
	if err != nil || r[8] == 0 {
		return 0, err
	}
	return r[9], nil
}
