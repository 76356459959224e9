package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dup(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "copy"), nil
}

// pair is a connected pair of unix sockets.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// scripted is a Client whose PID 1 is serve.
func scripted(t *testing.T, serve func(c *Conn, r Request)) *Client {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	b := NewClient("test", func(context.Context) (*net.UnixConn, error) {
		near, far := pair(t)
		wg.Go(func() {
			c := NewConn(far)
			defer c.Close()
			var r Request
			if err := c.RecvJSON(FrameRequest, &r); err != nil {
				t.Errorf("the request: %v", err)
				return
			}
			serve(c, r)
		})
		return near, nil
	}, nil)
	t.Cleanup(func() { b.Close() })
	return b
}

func TestClientExec(t *testing.T) {
	b := scripted(t, func(c *Conn, r Request) {
		files := c.TakeFiles()
		if r.Op != OpExec || r.Command.Argv[0] != "prog" || r.Stdio != [3]bool{false, true, true} || len(files) != 2 {
			t.Errorf("the request is %+v with %d files", r, len(files))
			return
		}
		files[0].WriteString("out")
		files[1].WriteString("err")
		for _, f := range files {
			f.Close()
		}
		c.SendJSON(FrameReply, Reply{Exit: &Exit{Code: 3}})
	})
	res, err := Output(t.Context(), b, Command{Argv: []string{"prog"}}, Limits{})
	if err != nil || res.Exit.Code != 3 || res.Stdout.String() != "out" || res.Stderr.String() != "err" {
		t.Errorf("%+v, %v", res, err)
	}
}

// A guest that ends in the middle of anything is a box that is gone.
func TestBrokenGuest(t *testing.T) {
	for name, serve := range map[string]func(c *Conn, r Request){
		"no reply":      func(*Conn, Request) {},
		"half a frame":  func(c *Conn, _ Request) { c.c.Write([]byte{'R', 0, 0, 0, 9, '{'}) },
		"half a header": func(c *Conn, _ Request) { c.c.Write([]byte{'R', 0}) },
		"data only":     func(c *Conn, _ Request) { c.Send(FrameData, []byte("x")) },
	} {
		b := scripted(t, serve)
		for op, call := range map[string]func() error{
			"exec": func() error { _, err := b.Exec(t.Context(), Command{Argv: []string{"x"}}, [3]*os.File{}); return err },
			"read": func() error { _, err := b.ReadFile(t.Context(), "/x", 10); return err },
			"stat": func() error { _, err := b.Stat(t.Context(), "/x"); return err },
			"tree": func() error {
				r, err := b.Tree(t.Context(), "/x")
				if err == nil {
					_, err = io.ReadAll(r)
					r.Close()
				}
				return err
			},
			"extract": func() error { return b.Extract(t.Context(), "/x", strings.NewReader("")) },
			"renew":   func() error { return b.Renew(t.Context(), time.Hour) },
		} {
			err := call()
			if name == "data only" && (op == "exec" || op == "stat" || op == "renew" || op == "extract") {
				if err == nil {
					t.Errorf("%s, %s: no error", name, op)
				}
				continue
			}
			if !errors.Is(err, ErrGone) {
				t.Errorf("%s, %s: %v, want ErrGone", name, op, err)
			}
		}
	}
}

// What a broken or hostile guest may say must not cost more than a limit.
func TestHugeFrame(t *testing.T) {
	b := scripted(t, func(c *Conn, _ Request) {
		head := []byte{'R', 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[1:], 1<<31)
		c.c.Write(head)
	})
	if _, err := b.Stat(t.Context(), "/"); !errors.Is(err, errFrame) {
		t.Errorf("%v", err)
	}
}

func TestCancelTellsTheGuest(t *testing.T) {
	told := make(chan struct{})
	b := scripted(t, func(c *Conn, _ Request) {
		if _, _, err := c.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the guest read %v", err)
		}
		close(told)
		c.SendJSON(FrameReply, Reply{Fault: &Fault{Text: "stopped"}})
	})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := b.Exec(ctx, Command{Argv: []string{"x"}}, [3]*os.File{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-told:
	default:
		t.Error("it returned before the guest had stopped")
	}
}

func TestCloseEndsWhatGoesOn(t *testing.T) {
	b := scripted(t, func(c *Conn, _ Request) { c.Recv() })
	time.AfterFunc(20*time.Millisecond, func() { b.Close() })
	if _, err := b.Exec(t.Context(), Command{Argv: []string{"x"}}, [3]*os.File{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}

// An archive whose source fails is not taken for the whole.
func TestExtractOfABrokenSource(t *testing.T) {
	got := make(chan error, 1)
	b := scripted(t, func(c *Conn, _ Request) {
		_, err := io.Copy(io.Discard, &DataReader{Conn: c})
		got <- err
	})
	broken := &fs.PathError{Op: "read", Path: "x", Err: syscall.ENOENT}
	err := b.Extract(t.Context(), "/x", io.MultiReader(strings.NewReader("part"), iotestErr{broken}))
	if !errors.Is(err, syscall.ENOENT) || errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if err := <-got; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the guest read %v", err)
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

func TestFaults(t *testing.T) {
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, fs.ErrNotExist, syscall.EACCES, &fs.PathError{Op: "read", Path: "/x", Err: ErrTooBig},
		&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, fs.ErrInvalid, errors.ErrUnsupported,
	} {
		b, jerr := json.Marshal(FaultOf(err))
		if jerr != nil {
			t.Fatal(jerr)
		}
		var f *Fault
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatal(err)
		}
		back := f.Err()
		if back.Error() != err.Error() {
			t.Errorf("%v came back as %v", err, back)
		}
		for _, is := range []error{fs.ErrNotExist, fs.ErrPermission, ErrTooBig, syscall.ECONNREFUSED, syscall.ENOENT, fs.ErrInvalid, errors.ErrUnsupported} {
			if is == syscall.ENOENT && !errors.Is(err, syscall.ENOENT) {
				continue
			}
			if errors.Is(err, is) != errors.Is(back, is) {
				t.Errorf("%v: errors.Is(%v) was %v and is %v", err, is, errors.Is(err, is), errors.Is(back, is))
			}
		}
	}
	if FaultOf(nil) != nil || (*Fault)(nil).Err() != nil {
		t.Error("no error is a fault")
	}
}

// Descriptors come along with the frame that they were sent with, in order.
func TestFilesRideAlong(t *testing.T) {
	a, b := pair(t)
	near, far := NewConn(a), NewConn(b)
	defer near.Close()
	defer far.Close()
	var files []*os.File
	for range 5 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		files = append(files, w)
	}
	big := bytes.Repeat([]byte("x"), 1<<20)
	done := make(chan error, 1)
	go func() {
		err := near.Send(FrameData, []byte("none"))
		if err == nil {
			err = near.Send(FrameData, big, files...)
		}
		done <- err
	}()
	if _, p, err := far.Recv(); err != nil || string(p) != "none" || len(far.TakeFiles()) != 0 {
		t.Fatalf("%q, %v", p, err)
	}
	_, p, err := far.Recv()
	if err != nil || !bytes.Equal(p, big) {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	got := far.TakeFiles()
	if err := <-done; err != nil || len(got) != 5 {
		t.Fatalf("%d files, %v", len(got), err)
	}
	for i, f := range got {
		want, err := files[i].Stat()
		if err != nil {
			t.Fatal(err)
		}
		if have, err := f.Stat(); err != nil || !os.SameFile(have, want) {
			t.Errorf("file %d is another", i)
		}
		f.Close()
	}
}

// FuzzConn: no bytes of a peer make a reader panic, hang, or take more memory than a frame may have.
func FuzzConn(f *testing.F) {
	frame := func(kind byte, n uint32, payload string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, n), payload...)
	}
	f.Add(frame('R', 2, "{}"))
	f.Add(append(frame('D', 3, "abc"), frame('R', 2, "{}")...))
	f.Add(frame('D', 1<<31, ""))
	f.Add(frame('R', 20, `{"fault":{"text":1}}`))
	f.Add([]byte{'D', 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Write(data)
			a.Close()
		}()
		c := NewConn(b)
		r := &DataReader{Conn: c}
		n, err := io.Copy(io.Discard, r)
		if err == nil && r.Last == 0 || n > int64(len(data)) {
			t.Errorf("%d bytes of data, last %q, %v", n, r.Last, err)
		}
		var reply Reply
		_ = c.RecvJSON(FrameReply, &reply)
		_ = reply.Fault.Err()
		c.Close()
		<-done
	})
}

// What Tree gives is what the guest sent, and its fault in the middle is an error of the stream.
func TestTreeStream(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	w.WriteHeader(&tar.Header{Name: "f", Size: 100000, Mode: 0o644, Typeflag: tar.TypeReg})
	w.Write(make([]byte, 100000))
	w.Close()
	for _, fault := range []*Fault{nil, {Text: "read f: input/output error", Errno: int(syscall.EIO)}} {
		b := scripted(t, func(c *Conn, _ Request) {
			DataWriter{c}.Write(buf.Bytes())
			c.SendJSON(FrameReply, Reply{Fault: fault})
		})
		r, err := b.Tree(t.Context(), "/x")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if !bytes.Equal(got, buf.Bytes()) || (fault == nil) != (err == nil) || fault != nil && !errors.Is(err, syscall.EIO) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}
