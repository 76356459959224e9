package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	// dataFolder is where data is staged in a server's box.
	dataFolder = "/data"
	// resetLimit bounds one data/reset.
	resetLimit = 30 * time.Second
)

// loadLimit is how long a server may take to load so many bytes: 15 minutes and 20 for each GB, an hour at most.
func loadLimit(size int64) time.Duration {
	return min(time.Hour, 15*time.Minute+time.Duration(float64(size)/1e9*float64(20*time.Minute)))
}

// NoServerError is data for an environment that a deployment has no server of.
type NoServerError struct {
	What string   // "artifact '…'"
	Name string   // the environment's name
	Has  []string // names that the deployment has
}

func (e *NoServerError) Error() string {
	return fmt.Sprintf("%s holds data for %s, and the environment has no server of that name; it has %s", e.What, diag.Repr(e.Name), quoted(e.Has))
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = diag.Repr(n)
	}
	return strings.Join(out, ", ")
}

// Loaded is what Load did.
type Loaded struct {
	Names   []string `json:"names"`   // environments that have the data now, in the artifact's order
	Skipped []string `json:"skipped"` // environments of a universe that the deployment has no server for
}

// Load gives each server its environment's data: what it held is reset and the new data added, environments side by side. An environment whose add fails is
// reset once more, so that it never keeps half of the data; the error says so and names each that failed. Of a universe, environments that have no
// server here are skipped; *NoServerError when nothing is left, or for an artifact of one environment that has none.
//
// A computer's environments are given their data one after another, on top of what they hold: loadComputer.
func (v *Env) Load(ctx context.Context, objects store.Objects, d envstore.Data) (Loaded, error) {
	if v.isComputer() {
		return v.loadComputer(ctx, objects, d)
	}
	has := v.Names()
	var todo []envstore.Payload
	var out Loaded
	for _, p := range d.Payloads {
		if slices.Contains(has, p.Environment) {
			todo = append(todo, p)
			continue
		}
		out.Skipped = append(out.Skipped, p.Environment)
	}
	if len(todo) == 0 {
		err := &NoServerError{What: "artifact " + diag.Repr(d.Artifact.ID), Has: has}
		if len(d.Payloads) > 0 {
			err.Name = d.Payloads[0].Environment
		}
		return out, err
	}
	errs := make([]error, len(todo))
	limit := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, p := range todo {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			if errs[i] = v.load(ctx, objects, p); errs[i] != nil {
				errs[i] = fmt.Errorf("load %s into %s: %w", diag.Repr(p.File.Path), diag.Repr(p.Environment), errs[i])
			}
		})
	}
	wg.Wait()
	for i, p := range todo {
		if errs[i] == nil {
			out.Names = append(out.Names, p.Environment)
		}
	}
	return out, errors.Join(errs...)
}

// load stages a file in the server's box, resets the server and adds the file. A server outside of boxes is handed its bytes.
func (v *Env) load(ctx context.Context, objects store.Objects, p envstore.Payload) error {
	s := v.server(p.Environment)
	file := path.Base(p.File.Path)
	part := wire.URIPart((&url.URL{Scheme: "file", Path: path.Join(dataFolder, file)}).String(), p.Media, file)
	var err error
	if s.away != nil {
		var done func()
		part, done, err = s.handed(ctx, objects, p, file)
		defer done()
	} else {
		err = stageIn(ctx, s, objects, p, file)
	}
	if err != nil {
		return fmt.Errorf("stage it: %w", err)
	}
	if err := v.empty(ctx, p.Environment); err != nil {
		return err
	}
	params, err := json.Marshal(map[string]any{"parts": []wire.Part{part}})
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, loadLimit(p.File.Size), fmt.Errorf("the server took more than %s", loadLimit(p.File.Size)))
	defer cancel()
	if _, err := v.Gateway.Data(limited, p.Environment, wire.Add, params); err != nil {
		return fmt.Errorf("%s failed: %w; %s", wire.Add, caused(limited, err), v.afterwards(ctx, p.Environment))
	}
	return v.watch(ctx, p.Environment)
}

// stageIn puts a payload into the server's box.
func stageIn(ctx context.Context, s *Server, objects store.Objects, p envstore.Payload, file string) error {
	return guest.Put(ctx, s.box, dataFolder, []guest.PutFile{{Path: file, Mode: 0o644, Size: p.File.Size, Open: func() (io.ReadCloser, error) {
		r, _, err := store.OpenVerified(ctx, objects, p.File.Digest)
		return r, err
	}}})
}

// afterwards resets an environment whose add failed and says what became of it. It works under a cancelled ctx too.
func (v *Env) afterwards(ctx context.Context, name string) string {
	if err := v.empty(context.WithoutCancel(ctx), name); err != nil {
		return "it could not be reset after that, so it may hold part of the data: " + err.Error()
	}
	return "it was reset, so it holds none of the data"
}

// caused is the cause of a context's end in place of an error that tells of the end alone.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Reset puts environments back: those named, or all. One of a plugin's type gets its first state again where the plugin can do that; all others are emptied.
func (v *Env) Reset(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		names = slices.DeleteFunc(v.DataNames(), func(name string) bool {
			h, ok := v.holder(name)
			return ok && !h.serves(wire.Reset)
		})
		if len(names) == 0 {
			return fmt.Errorf("none of %s serves %s", quoted(v.DataNames()), wire.Reset)
		}
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			s := v.server(name)
			if s != nil && s.away != nil && s.away.Reset != nil {
				ctx, cancel := context.WithTimeoutCause(ctx, resetLimit, fmt.Errorf("its plugin took more than %s", resetLimit))
				defer cancel()
				if err := s.away.Reset(ctx); !errors.Is(err, ErrNoReset) {
					if err != nil {
						errs[i] = fmt.Errorf("reset of %s failed: %w", diag.Repr(name), caused(ctx, err))
					}
					return
				}
			}
			errs[i] = v.empty(ctx, name)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// empty calls an environment's data/reset.
func (v *Env) empty(ctx context.Context, name string) error {
	limit := resetLimit
	if h, ok := v.holder(name); ok {
		limit = max(limit, h.limit())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the server took more than %s", limit))
	defer cancel()
	if _, err := v.data(ctx, name, wire.Reset, json.RawMessage("{}")); err != nil {
		return fmt.Errorf("%s of %s failed: %w", wire.Reset, diag.Repr(name), caused(ctx, err))
	}
	return nil
}

// server is the one that has the data of an environment; nil for a name that Names lacks.
func (v *Env) server(name string) *Server {
	for _, s := range v.Servers {
		if s.Name == name && s.backend() {
			return s
		}
	}
	return nil
}

// Export is one environment's data, from the server.
type Export struct {
	Environment string
	File        string // a name for it
	io.ReadCloser
}

// Get asks one environment for its data; ErrEmpty when it has none. The caller closes the Export, which reads it as it comes: within ctx.
func (v *Env) Get(ctx context.Context, name string) (Export, error) {
	return v.export(ctx, name, nil)
}

// open reads what a part holds or names, of a server or an app.
func (v *Env) open(ctx context.Context, h holder, p wire.Part) (Export, error) {
	s := h.server
	bytesOf := func(name, text string) (Export, error) {
		return Export{File: name, ReadCloser: io.NopCloser(strings.NewReader(text))}, nil
	}
	switch {
	case p.Kind == wire.KindData:
		return bytesOf("data.json", string(p.Data))
	case p.Kind == wire.KindText:
		return bytesOf("data.txt", p.Text)
	case p.Kind != wire.KindFile || p.File == nil:
		return Export{}, fmt.Errorf("a part of kind %s can't be stored", diag.Repr(p.Kind))
	case p.File.Inline():
		b, err := p.File.Content()
		if err != nil {
			return Export{}, err
		}
		return bytesOf(exportName(p.File.Name), string(b))
	}
	u, err := url.Parse(p.File.URI)
	if err != nil {
		return Export{}, errors.New("the part's uri is none")
	}
	name := p.File.Name
	if name == "" {
		name = path.Base(u.Path)
	}
	switch {
	case u.Scheme == "file" && s.away == nil && (u.Host == "" || u.Host == "localhost"):
		f, err := boxFile(ctx, s.box, path.Clean("/"+u.Path), maxFileExport)
		if err != nil {
			return Export{}, fmt.Errorf("read what it names in its sandbox: %w", err)
		}
		return Export{File: exportName(name), ReadCloser: f}, nil
	case u.Scheme == "" && u.Host == "":
		return fetch(ctx, h, u, exportName(name))
	default:
		return Export{}, fmt.Errorf("the part's uri is a %s address, which is not fetched; a server answers with data, bytes, or a path of its own", diag.Repr(u.Scheme))
	}
}

// maxFileExport bounds an export that a server left as a file of its box.
const maxFileExport = 1 << 30

// fetch streams a path of the server's own, or of an app's own, which is below where the computer's driver serves the app.
func fetch(ctx context.Context, h holder, u *url.URL, name string) (Export, error) {
	s := h.server
	at := s.url(h.root() + path.Clean("/"+u.Path))
	at.RawQuery = u.RawQuery
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return Export{}, err
	}
	t := s.transport()
	t.DisableKeepAlives = true
	resp, err := t.RoundTrip(req)
	if err != nil {
		return Export{}, fmt.Errorf("fetch what it names: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return Export{}, fmt.Errorf("fetch what it names: status %d", resp.StatusCode)
	}
	return Export{File: name, ReadCloser: resp.Body}, nil
}

// exportName is a plain file name for an export: what the server calls it, or data.zip as callers of old servers expect.
func exportName(name string) string {
	name = path.Base(strings.ReplaceAll(name, "\\", "/"))
	if name == "." || name == "/" || name == ".." || strings.ContainsRune(name, 0) || len(name) > 200 {
		return "data.zip"
	}
	return name
}

// ErrExport: an environment could not be asked for its data, or answered none that can be stored.
var ErrExport = errors.New("export failed")

const (
	// exportsAtOnce is how many environments are asked for their data at a time.
	exportsAtOnce = 3
	// exportLimit bounds an export that nobody bounds.
	exportLimit = 10 * time.Minute
)

// Snapshot says what is kept of an environment.
type Snapshot struct {
	ID    string        // of the universe
	Limit time.Duration // of each export; 0 is ten minutes
	// Calls and Changes are kept beside the data, as metadata, where they can be. Missed is told why one can't, once; it may be nil.
	Calls, Changes bool
	Missed         func(what string, err error)
	// Params are those of data/get, by environment name.
	Params map[string]json.RawMessage
}

// Exporting are the environments that can be asked for their data, in order.
func (v *Env) Exporting() []string {
	return slices.DeleteFunc(v.DataNames(), func(name string) bool {
		h, ok := v.holder(name)
		return ok && !h.serves(wire.Get)
	})
}

// exportLimit is how long an environment's export may take: as long as is asked for, or else what an app says of itself where that is more.
func (v *Env) exportLimit(name string, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	h, _ := v.holder(name)
	return max(exportLimit, h.limit())
}

// checkParams refuses parameters for environments that aren't exported.
func checkParams(exported []string, params map[string]json.RawMessage) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(exported, name) {
			errs = append(errs, fmt.Errorf("there are parameters for %s, and no environment of that name is exported; there are %s", diag.Repr(name), quoted(exported)))
		}
	}
	return errors.Join(errs...)
}

// Snapshot stores the data of every environment as the next version of a universe, and answers which of them are in it: those that hold nothing are left
// out. Nothing is stored when one can't be exported: the error is ErrExport then.
func (v *Env) Snapshot(ctx context.Context, s store.Store, o Snapshot) (pin envstore.Pin, kept []string, err error) {
	names := v.Exporting()
	if err := checkParams(names, o.Params); err != nil {
		return envstore.Pin{}, nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	if err := envstore.CheckSnapshotNames(names); err != nil {
		return envstore.Pin{}, nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	pin, err = envstore.PutSnapshot(ctx, s, o.ID, func(ctx context.Context, put func(envstore.Piece) error) error {
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(exportsAtOnce)
		empty := make([]bool, len(names))
		for i, name := range names {
			g.Go(func() error {
				limit := v.exportLimit(name, o.Limit)
				ctx, cancel := context.WithTimeoutCause(gctx, limit, fmt.Errorf("the server took more than %s", limit))
				defer cancel()
				x, err := v.export(ctx, name, o.Params[name])
				if errors.Is(err, ErrEmpty) {
					empty[i] = true
					return nil
				}
				if err != nil {
					return fmt.Errorf("%w: %w", ErrExport, err)
				}
				defer x.Close()
				return put(envstore.Piece{Folder: name, File: x.File, Reader: x})
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		kept = nil
		for i, name := range names {
			if !empty[i] {
				kept = append(kept, name)
			}
		}
		if len(kept) == 0 {
			return fmt.Errorf("%w: none of %s holds anything", ErrExport, quoted(names))
		}
		return v.putLogs(ctx, o, put)
	})
	return pin, kept, err
}
