package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// Part is one piece of a load, as a hook gets it.
type Part struct {
	wire.Part
	// Path is where the sender wants a file, relative to the home; "" when it doesn't say.
	Path string

	read   json.RawMessage // the grant to read it with, if there is one
	client *http.Client
}

// Bytes is a file's content: what the grant leads to, what stands in the part, or what an https address answers. Of a text it is that, of data their JSON.
func (p *Part) Bytes(ctx context.Context) ([]byte, error) {
	switch p.Kind {
	case wire.KindText:
		return []byte(p.Text), nil
	case wire.KindData:
		return p.Data, nil
	}
	return home.Fetch(ctx, p.client, &p.Part, p.read)
}

// ReadPart reads what a part says of itself. A file may lack the metadata that tell its path; metadata that are wrong are an error.
func ReadPart(p wire.Part) (*Part, error) {
	out := &Part{Part: p, client: home.Client()}
	if p.Kind != wire.KindFile || !marked(p.Metadata) {
		return out, nil
	}
	var err error
	out.Path, out.read, err = home.Place(&p)
	return out, err
}

func marked(meta json.RawMessage) bool {
	var m map[string]json.RawMessage
	return meta != nil && (json.Unmarshal(meta, &m) != nil || m[wire.URNDataObjects] != nil)
}

// PartBytes is where a part goes, "" when it doesn't say, and its bytes.
func PartBytes(ctx context.Context, p wire.Part) (path string, content []byte, err error) {
	r, err := ReadPart(p)
	if err != nil {
		return "", nil, err
	}
	content, err = r.Bytes(ctx)
	return r.Path, content, err
}

// addData serves the methods that something does: hooks, or the defaults of an app that has paths.
func (s *Server) addData() {
	add, get := s.adder(), s.getter()
	if add != nil {
		s.env.OnAdd(func(ctx context.Context, inputs []*env.Input) error {
			return s.call(ctx, wire.Add, func(ctx context.Context) error { return add(ctx, inputs) })
		})
	}
	if get != nil {
		s.env.OnExport(func(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
			var parts []wire.Part
			err := s.call(ctx, wire.Get, func(ctx context.Context) error {
				got, err := get(ctx, to)
				if err == nil && ctx.Err() == nil { // else nobody waits for it
					parts = got
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			return parts, nil
		})
	}
	if reset := s.resetter(); reset != nil {
		s.env.OnReset(func(ctx context.Context) error { return s.call(ctx, wire.Reset, reset) })
	}
	s.declareTree()
}

// declareTree says on the card that a default takes, or answers, files by their paths. What hooks take is theirs to say.
func (s *Server) declareTree() {
	params := map[string]any{}
	if s.app.Add == nil && len(s.app.Paths) > 0 {
		params["add"] = []any{map[string]string{"part": "file", "format": "file-tree", "load": "additive"}}
	}
	if s.app.Get == nil && len(s.app.Paths) > 0 {
		params["get"] = []any{map[string]string{"part": "file", "format": "file-tree"}}
	}
	if len(params) == 0 {
		return
	}
	b, _ := json.Marshal(params) // texts always encode
	s.env.Declare(wire.Extension{URI: wire.URNIntake, Description: "What data goes in and comes out.", Params: b})
}

func (s *Server) adder() func(context.Context, []*env.Input) error {
	switch {
	case s.app.Add != nil:
		return s.addByHook
	case len(s.app.Paths) > 0:
		return s.addFiles
	}
	return nil
}

func (s *Server) getter() func(context.Context, *env.Namespace) ([]wire.Part, error) {
	switch {
	case s.app.Get != nil:
		return s.app.Get
	case len(s.app.Paths) > 0:
		return s.getFiles
	}
	return nil
}

func (s *Server) resetter() func(context.Context) error {
	switch {
	case s.app.Reset != nil:
		return s.app.Reset
	case len(s.app.Paths) > 0:
		return s.putBack
	}
	return nil
}

func (s *Server) addByHook(ctx context.Context, inputs []*env.Input) error {
	parts := make([]*Part, len(inputs))
	var errs []error
	for i, in := range inputs {
		p, err := ReadPart(in.Part)
		if err != nil {
			errs = append(errs, fmt.Errorf("parts[%d]: %w", i, err))
		}
		p.client = s.client
		parts[i] = p
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.app.Add(ctx, parts)
}

// addFiles is the default load. All that is wrong with the places is told, and all is fetched, before the first file is written.
func (s *Server) addFiles(ctx context.Context, inputs []*env.Input) error {
	places := home.Places{Within: s.app.Paths, Temp: s.scratch()}
	files := make([]home.File, 0, len(inputs))
	reads := make([]json.RawMessage, len(inputs))
	var errs []error
	for i, in := range inputs {
		p, read, err := home.Place(&in.Part)
		if err == nil {
			err = home.Check(s.home, []home.File{{Path: p}}, places)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("parts[%d]: %w", i, err))
		}
		files, reads[i] = append(files, home.File{Path: p}), read
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, in := range inputs {
		var err error
		if files[i].Data, err = home.Fetch(ctx, s.client, &in.Part, reads[i]); err != nil {
			return fmt.Errorf("parts[%d]: %s: %w", i, files[i].Path, err)
		}
	}
	if err := s.root.MkdirAll(places.Temp, 0o700); err != nil {
		return err
	}
	err := home.Write(ctx, s.home, files, places)
	return errors.Join(err, s.root.RemoveAll(places.Temp))
}

// getFiles is the default export.
func (s *Server) getFiles(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
	out := home.NewAnswer(to)
	err := out.Read(ctx, s.home, s.app.Paths, []string{home.Private})
	return out.Parts(), err
}
