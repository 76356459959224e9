package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// maxHandedOver bounds what one environment of a computer is given at a time: all of it is in memory, and in one message.
const maxHandedOver = 512 << 20

// isComputer tells whether the environment is one.
func (v *Env) isComputer() bool { return len(v.Servers) == 1 && v.Servers[0].computer != nil }

// Computer is the name of the computer that the environment is; false for any other.
func (v *Env) Computer() (string, bool) {
	if !v.isComputer() {
		return "", false
	}
	return v.Servers[0].Name, true
}

// loadComputer gives a computer and its apps their data, by name: the computer first, so that an app's files end as its own data have them, then
// the apps in the order in which they are declared. Everything that can't be loaded is told before anything is. The first that fails ends the load.
func (v *Env) loadComputer(ctx context.Context, objects store.Objects, d envstore.Data) (Loaded, error) {
	order := append([]string{v.Servers[0].Name}, v.Servers[0].computer.Apps...)
	at := func(p envstore.Payload) int { return slices.Index(order, p.Environment) }
	var todo []envstore.Payload
	var out Loaded
	for _, p := range d.Payloads {
		if at(p) < 0 {
			out.Skipped = append(out.Skipped, p.Environment)
			continue
		}
		todo = append(todo, p)
	}
	if len(todo) == 0 {
		err := &NoServerError{What: "artifact " + diag.Repr(d.Artifact.ID), Has: v.DataNames()}
		if len(d.Payloads) > 0 {
			err.Name = d.Payloads[0].Environment
		}
		return out, err
	}
	var refused []error
	for _, p := range todo {
		h, ok := v.holder(p.Environment)
		switch {
		case !ok:
			refused = append(refused, fmt.Errorf("the computer's card doesn't list the app %s", diag.Repr(p.Environment)))
		case !h.serves(wire.Add):
			refused = append(refused, fmt.Errorf("environment %s takes no data: its card serves no %s", diag.Repr(p.Environment), wire.Add))
		default:
			if err := checkTree(ctx, objects, p); err != nil {
				refused = append(refused, fmt.Errorf("%s of %s: %w", diag.Repr(p.File.Path), diag.Repr(p.Environment), err))
			}
		}
	}
	if refused != nil {
		return out, fmt.Errorf("nothing was loaded: %w", errors.Join(refused...))
	}
	slices.SortStableFunc(todo, func(a, b envstore.Payload) int { return at(a) - at(b) })
	for _, p := range todo {
		if err := v.handOver(ctx, objects, p); err != nil {
			return out, fmt.Errorf("load %s into %s: %w", diag.Repr(p.File.Path), diag.Repr(p.Environment), err)
		}
		out.Names = append(out.Names, p.Environment)
	}
	return out, nil
}

// handOver gives one environment its data, in one call.
func (v *Env) handOver(ctx context.Context, objects store.Objects, p envstore.Payload) error {
	h, _ := v.holder(p.Environment)
	parts, err := partsOf(ctx, objects, p, h.takesTree())
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return nil // an empty tree adds nothing
	}
	params, err := json.Marshal(map[string]any{"parts": parts})
	if err != nil {
		return err
	}
	limit := h.limit()
	if limit == 0 {
		limit = loadLimit(p.File.Size)
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
	defer cancel()
	if _, err := v.data(limited, p.Environment, wire.Add, params); err != nil {
		return fmt.Errorf("%s failed: %w", wire.Add, caused(limited, err))
	}
	return nil
}

// checkTree reads a payload that is a packed tree, and tells what can't be loaded of it.
func checkTree(ctx context.Context, objects store.Objects, p envstore.Payload) error {
	if !isTree(path.Base(p.File.Path)) {
		return nil
	}
	b, err := payload(ctx, objects, p)
	if err != nil {
		return err
	}
	_, err = membersOf(b)
	return err
}

// payload is all that a payload holds.
func payload(ctx context.Context, objects store.Objects, p envstore.Payload) ([]byte, error) {
	if p.File.Size > maxHandedOver {
		return nil, fmt.Errorf("it has %d MiB, and a computer is given %d at most", p.File.Size>>20, maxHandedOver>>20)
	}
	in, _, err := store.OpenVerified(ctx, objects, p.File.Digest)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, maxHandedOver+1))
}

// partsOf is a payload as a data plane takes it: the files of a packed tree, or the one file. A file <environment>.json is data where no files are taken.
func partsOf(ctx context.Context, objects store.Objects, p envstore.Payload, tree bool) ([]wire.Part, error) {
	b, err := payload(ctx, objects, p)
	if err != nil {
		return nil, err
	}
	name := path.Base(p.File.Path)
	switch {
	case isTree(name):
		return unpackTree(b)
	case !tree && name == p.Environment+".json" && json.Valid(b):
		part, err := wire.DataPart(json.RawMessage(b))
		return []wire.Part{part}, err
	default:
		part, err := placedPart(name, p.Media, b)
		return []wire.Part{part}, err
	}
}

// ErrEmpty: an environment holds nothing that could be kept.
var ErrEmpty = errors.New("holds nothing")

// export asks an environment for its data. ErrEmpty when it has none.
func (v *Env) export(ctx context.Context, name string, params json.RawMessage) (Export, error) {
	h, ok := v.holder(name)
	if !ok {
		return Export{}, fmt.Errorf("the environment has no server %s; it has %s", diag.Repr(name), quoted(v.DataNames()))
	}
	if params == nil {
		params = json.RawMessage("{}")
	}
	limited := ctx // what the answer names is read after that
	if limit := h.limit(); limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
		defer cancel()
	}
	raw, err := v.data(limited, name, wire.Get, params)
	if err != nil {
		return Export{}, fmt.Errorf("%s of %s failed: %w", wire.Get, diag.Repr(name), caused(limited, err))
	}
	var answer struct {
		Parts []wire.Part `json:"parts"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return Export{}, fmt.Errorf("%s of %s: the answer can't be read: %w", wire.Get, diag.Repr(name), err)
	}
	x, err := v.opened(ctx, h, name, answer.Parts)
	if err != nil {
		return Export{}, fmt.Errorf("%s of %s: %w", wire.Get, diag.Repr(name), err)
	}
	x.Environment = name
	return x, nil
}

// opened is the one file that an answer is kept as: a tree of files as a packed one, and of a computer's environments also data under their name.
func (v *Env) opened(ctx context.Context, h holder, name string, parts []wire.Part) (Export, error) {
	if len(parts) == 0 {
		return Export{}, fmt.Errorf("the answer holds no part: it %w", ErrEmpty)
	}
	if h.server.computer != nil || slices.ContainsFunc(parts, func(p wire.Part) bool { return placeOf(&p) != "" }) {
		switch {
		case len(parts) == 1 && parts[0].Kind == wire.KindData:
			return Export{File: name + ".json", ReadCloser: io.NopCloser(bytes.NewReader(parts[0].Data))}, nil
		case len(parts) == 1 && parts[0].Kind == wire.KindText:
			return Export{File: name + ".txt", ReadCloser: io.NopCloser(strings.NewReader(parts[0].Text))}, nil
		case len(parts) > 1 || placeOf(&parts[0]) != "":
			left := int64(maxFileExport)
			b, err := packTree(parts, func(p *wire.Part) ([]byte, error) {
				b, err := v.contentOf(ctx, h, *p, left)
				left -= int64(len(b))
				return b, err
			})
			if err != nil {
				return Export{}, err
			}
			return Export{File: name + treeSuffix, ReadCloser: io.NopCloser(bytes.NewReader(b))}, nil
		}
	}
	return v.open(ctx, h, parts[0])
}

// contentOf is what a part of an export holds or names, of at most limit bytes.
func (v *Env) contentOf(ctx context.Context, h holder, p wire.Part, limit int64) ([]byte, error) {
	x, err := v.open(ctx, h, p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = x.Close() }()
	b, err := io.ReadAll(io.LimitReader(x, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("the export is larger than %d MiB", int64(maxFileExport)>>20)
	}
	return b, err
}

// Probe asks an environment for its data, once, and drops them. That it holds none is no error.
func (v *Env) Probe(ctx context.Context, name string) error {
	x, err := v.export(ctx, name, nil)
	if errors.Is(err, ErrEmpty) {
		return nil
	}
	if err != nil {
		return err
	}
	return x.Close()
}
