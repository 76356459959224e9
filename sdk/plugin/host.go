package plugin

import (
	"context"
	"encoding/json"
	"log/slog"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Host is what a call may ask of AgentEnv. Its methods fail when the call has ended.
type Host struct {
	call string
	peer *rpc.Peer
	temp string
}

// TempDir is a folder for files that are handed to the host. It goes with the process.
func (h *Host) TempDir() string { return h.temp }

// Ask calls any method of the host; params is a struct or map that becomes an object, and gets the member call.
func (h *Host) Ask(ctx context.Context, method string, params, result any) error {
	b, err := json.Marshal(params)
	if err != nil {
		return err
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if m == nil {
		m = map[string]json.RawMessage{}
	}
	if m["call"], err = json.Marshal(h.call); err != nil {
		return err
	}
	return h.peer.Call(ctx, method, m, result, nil)
}

// Secret is the secret of this name, which the configuration has to grant.
func (h *Host) Secret(ctx context.Context, key string) (string, error) {
	var out struct {
		Value string `json:"value"`
	}
	err := h.Ask(ctx, "host/secret.get", map[string]string{"key": key}, &out)
	return out.Value, err
}

// Settings decodes the table [plugins.<distribution>] of the configuration into v; an absent one is empty.
func (h *Host) Settings(ctx context.Context, distribution string, v any) error {
	var out struct {
		Settings json.RawMessage `json:"settings"`
	}
	if err := h.Ask(ctx, "host/settings.get", map[string]string{"distribution": distribution}, &out); err != nil {
		return err
	}
	return json.Unmarshal(out.Settings, v)
}

// Object is a thing in the object store.
type Object struct {
	URL    string `json:"url"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// PutFile stores a file's content.
func (h *Host) PutFile(ctx context.Context, file, contentType string) (Object, error) {
	var out Object
	err := h.Ask(ctx, "host/object.put", map[string]string{"file": file, "content_type": contentType}, &out)
	return out, err
}

// PutText stores a text.
func (h *Host) PutText(ctx context.Context, text, contentType string) (Object, error) {
	var out Object
	err := h.Ask(ctx, "host/object.put", map[string]string{"text": text, "content_type": contentType}, &out)
	return out, err
}

// GetObject is the path of a file with an object's content, the caller's to remove.
func (h *Host) GetObject(ctx context.Context, url string) (string, error) {
	var out struct {
		File string `json:"file"`
	}
	err := h.Ask(ctx, "host/object.get", map[string]string{"url": url}, &out)
	return out.File, err
}

// Command is one command in a sandbox of the run.
type SandboxCommand struct {
	Sandbox string   `json:"sandbox_name"`
	Argv    []string `json:"argv"`
	Dir     string   `json:"dir,omitempty"`
	Env     []string `json:"env,omitempty"`
	Stdin   string   `json:"stdin,omitempty"`
	Timeout float64  `json:"timeout_seconds,omitempty"`
}

// Output is what a command left; streams are cut at 1 MiB.
type Output struct {
	ExitCode  int    `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"`
}

// Exec runs a command in a sandbox. A command that ends with a code other than 0 is no error.
func (h *Host) Exec(ctx context.Context, c SandboxCommand) (Output, error) {
	var out Output
	err := h.Ask(ctx, "host/sandbox.exec", c, &out)
	return out, err
}

// Spend books a cost of the call at once.
func (h *Host) Spend(usd float64, input, output int64) {
	_ = h.peer.Notify(NotifySpend, Spend{h.call, usd, input, output}) // the connection's end ends the call anyway
}

// logHandler writes a call's log lines as notifications.
type logHandler struct {
	h      *Host
	attrs  []slog.Attr
	prefix string
}

func (l *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (l *logHandler) Handle(_ context.Context, r slog.Record) error {
	line := Line{Call: l.h.call, Level: "debug", Message: r.Message}
	switch {
	case r.Level >= slog.LevelError:
		line.Level = "error"
	case r.Level >= slog.LevelWarn:
		line.Level = "warning"
	case r.Level >= slog.LevelInfo:
		line.Level = "info"
	}
	add := func(prefix string, a slog.Attr) {
		if line.Fields == nil {
			line.Fields = map[string]any{}
		}
		line.Fields[prefix+a.Key] = a.Value.Resolve().String()
	}
	for _, a := range l.attrs {
		add("", a)
	}
	r.Attrs(func(a slog.Attr) bool { add(l.prefix, a); return true })
	return l.h.peer.Notify(NotifyLog, line)
}

func (l *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	c.attrs = append([]slog.Attr{}, l.attrs...)
	for _, a := range attrs {
		a.Key = l.prefix + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

func (l *logHandler) WithGroup(name string) slog.Handler {
	c := *l
	if name != "" {
		c.prefix += name + "."
	}
	return &c
}
