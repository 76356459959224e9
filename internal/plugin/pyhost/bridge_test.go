package pyhost_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

// bridge is a Python host with a host of the tests at its other end.
type bridge struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	calls map[string]func(params json.RawMessage) (any, error) // host calls
	temp  string
	err   bytes.Buffer
	errs  string // the file that has stderr, where err hasn't

	writing sync.Mutex
	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	logs    []string
	done    chan struct{}
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Type  string `json:"type"`
		Infra bool   `json:"infra"`
	} `json:"data"`
}

func (f *failure) Error() string { return fmt.Sprintf("%d: %s", f.Code, f.Message) }

type entry = pyhost.Entry

// start starts the Python host of an environment, and answers its questions with calls.
func start(t testing.TB, python string, calls map[string]func(json.RawMessage) (any, error)) *bridge {
	t.Helper()
	argv := pyhost.Argv(python)
	b := &bridge{t: t, cmd: exec.CommandContext(t.Context(), argv[0], argv[1:]...), calls: calls, temp: t.TempDir(), waiting: map[int]chan message{}, done: make(chan struct{})}
	b.cmd.Env = append(pyhost.Env(), "AGENTENV_PLUGIN=stdio", "PATH="+os.Getenv("PATH"), "HOME="+b.temp)
	b.cmd.Dir, b.cmd.Stderr = b.temp, &b.err
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.in = in
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go b.read(out)
	t.Cleanup(b.stop)
	if _, err := b.call("initialize", map[string]any{"protocol_versions": []int{1}, "host": map[string]string{"name": "test", "version": "0"}, "temp_dir": b.temp}); err != nil {
		t.Fatalf("initialize: %v\n%s", err, &b.err)
	}
	return b
}

func (b *bridge) stop() {
	_ = b.in.Close()
	<-b.done
	_ = b.cmd.Wait()
	if b.t.Failed() {
		b.t.Logf("stderr of the Python host:\n%s", &b.err)
	}
}

func (b *bridge) read(r io.Reader) {
	defer close(b.done)
	s := bufio.NewReader(r)
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		line, err := s.ReadBytes('\n')
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = map[int]chan message{}
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			b.t.Errorf("the Python host wrote what is no message: %q", line)
			continue
		}
		switch {
		case m.Method == "log":
			var l struct{ Level, Message string }
			_ = json.Unmarshal(m.Params, &l)
			b.mu.Lock()
			b.logs = append(b.logs, l.Level+" "+l.Message)
			b.mu.Unlock()
		case m.Method != "":
			answering.Go(func() { b.answer(m) })
		default:
			var id int
			_ = json.Unmarshal(m.ID, &id)
			b.mu.Lock()
			c := b.waiting[id]
			delete(b.waiting, id)
			b.mu.Unlock()
			if c != nil {
				c <- m
			}
		}
	}
}

func (b *bridge) answer(m message) {
	out := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	if f := b.calls[m.Method]; f == nil {
		out["error"] = map[string]any{"code": -32601, "message": "there is no " + m.Method}
	} else if v, err := f(m.Params); err != nil {
		out["error"] = map[string]any{"code": -32011, "message": err.Error()}
	} else {
		out["result"] = v
	}
	b.write(out)
}

func (b *bridge) write(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		b.t.Error(err)
		return
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	_, _ = b.in.Write(append(line, '\n'))
}

// send sends a request and answers its id, and where its answer will come.
func (b *bridge) send(method string, params any) (int, chan message) {
	c := make(chan message, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = c
	b.mu.Unlock()
	b.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id, c
}

func (b *bridge) call(method string, params any) (json.RawMessage, error) {
	_, c := b.send(method, params)
	return await(c)
}

func await(c chan message) (json.RawMessage, error) {
	select {
	case m, ok := <-c:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		if m.Error != nil {
			return nil, m.Error
		}
		return m.Result, nil
	case <-time.After(30 * time.Second):
		return nil, fmt.Errorf("no answer")
	}
}

// execute executes a step and answers its diff, as "op path=value" in order.
func (b *bridge) execute(e entry, step, context map[string]any) ([]string, error) {
	raw, err := b.call("step/execute", executeParams(e, step, context))
	if err != nil {
		return nil, err
	}
	var out struct {
		Diff []struct {
			Op, Path string
			Value    json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	var ops []string
	for _, o := range out.Diff {
		ops = append(ops, strings.TrimSuffix(o.Op+" "+o.Path+"="+string(o.Value), "="))
	}
	return ops, nil
}

func executeParams(e entry, step, context map[string]any) map[string]any {
	return map[string]any{"call": "c-1", "entry": e, "run": "@local/~/b/task-1234", "attempt": 1, "trial": 1, "step": step, "context": context}
}

func stepEntry(name, value string) entry { return entry{Group: steps, Name: name, Value: value} }

func (b *bridge) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.logs, "\n")
}
