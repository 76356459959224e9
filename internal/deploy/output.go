package deploy

import (
	"io"
	"os"
	"sync"

	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/sandbox"
)

// maxOutput is how large the log of a box's output may become; then its older half goes.
const maxOutput = 4 << 20

// outputLog keeps what the program of a box writes, without secrets, in the file that its provider has for it. What can't be written is not kept: a full
// disk must not stop a server. It is safe for concurrent use.
type outputLog struct {
	redact *redact.Redactor

	mu   sync.Mutex
	path string   // made with the first that is written; "" is nowhere
	file *os.File // nil until then
	size int64
	held string // what may be the beginning of a secret
}

// output is the log of a run's box; one that keeps nothing where the provider has no place for it.
func (d *Deployments) output(run, name string, r *redact.Redactor) *outputLog {
	o := &outputLog{redact: r}
	d.mu.Lock()
	var b *box
	if a := d.runs[run]; a != nil {
		b = a.boxes[name]
	}
	d.mu.Unlock()
	if b == nil {
		return o
	}
	l, ok := b.prov.(sandbox.OutputLogger)
	if !ok {
		return o
	}
	var err error
	if o.path, err = l.OutputLog(b.info.ID); err != nil {
		d.log.Debug("the output of a sandbox's program is not kept", "sandbox", b.info.ID, "error", err)
	}
	return o
}

// open is called with mu held; false when there is nowhere to write.
func (o *outputLog) open() bool {
	if o.file != nil || o.path == "" {
		return o.file != nil
	}
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		o.size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		o.path = ""
		return false
	}
	o.file = f
	return true
}

func (o *outputLog) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open() {
		return len(p), nil
	}
	text := o.held + string(p)
	n := o.redact.Open(text)
	o.held = text[len(text)-n:]
	o.write(o.redact.String(text[:len(text)-n]))
	return len(p), nil
}

// write is called with mu held.
func (o *outputLog) write(text string) {
	if o.size+int64(len(text)) > maxOutput {
		o.halve()
	}
	n, _ := o.file.WriteAt([]byte(text), o.size)
	o.size += int64(n)
}

// halve keeps the newer half.
func (o *outputLog) halve() {
	keep := make([]byte, min(maxOutput/2, o.size))
	n, err := o.file.ReadAt(keep, o.size-int64(len(keep)))
	if err != nil && err != io.EOF {
		n = 0
	}
	if o.file.Truncate(0) != nil {
		return
	}
	m, _ := o.file.WriteAt(keep[:n], 0)
	o.size = int64(m)
}

// Close writes what was held back.
func (o *outputLog) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil {
		return nil
	}
	o.write(o.redact.String(o.held))
	err := o.file.Close()
	o.file, o.path, o.held = nil, "", ""
	return err
}
