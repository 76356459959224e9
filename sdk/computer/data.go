package computer

import (
	"context"
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// homeFiles writes into a home on this machine.
type homeFiles struct{ home string }

// WriteFiles writes files one after another, each whole or not at all. What was written before one that fails stays.
func (h *homeFiles) WriteFiles(ctx context.Context, files []File) error {
	return home.Write(ctx, h.home, files, home.Places{})
}

// File is a file of the home.
type File = home.File

func (c *Computer) addData() {
	c.env.OnAdd(c.dataAdd)
	c.env.OnExport(c.dataGet)
	tree := map[string]any{"part": "file", "format": "file-tree"}
	c.declare(wire.URNIntake, "What data goes in and comes out.", map[string]any{
		"add": []any{map[string]any{"part": "file", "format": "file-tree", "load": "additive"}}, "get": []any{tree},
	})
}

// dataAdd fetches all files before the first is written.
func (c *Computer) dataAdd(ctx context.Context, inputs []*env.Input) error {
	var files []File
	at := map[string]int{}
	for i, in := range inputs {
		p, read, err := home.Place(&in.Part)
		if err == nil && wire.Below(p, home.Private) {
			err = fmt.Errorf("%s is no place for data", p)
		}
		if err != nil {
			return fmt.Errorf("parts[%d]: %w", i, err)
		}
		data, err := home.Fetch(ctx, c.client, &in.Part, read)
		if err != nil {
			return fmt.Errorf("parts[%d]: %s: %w", i, p, err)
		}
		if n, again := at[p]; again { // the last one wins
			files[n].Data = data
			continue
		}
		at[p] = len(files)
		files = append(files, File{Path: p, Data: data})
	}
	return c.writer.WriteFiles(ctx, files)
}

// dataGet answers the files under the paths that the settings, or this call, name.
func (c *Computer) dataGet(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
	paths, err := filePaths(env.CallFrom(ctx).Arguments)
	if err != nil {
		return nil, err
	}
	if paths == nil {
		paths = c.chosen().DataPaths
	}
	out := home.NewAnswer(to)
	err = out.Read(ctx, c.home, paths, append(c.appPaths(), home.Private))
	return out.Parts(), err
}

// filePaths is the paths that a call names; nil when it names none.
func filePaths(params json.RawMessage) ([]string, error) {
	var in struct {
		FilePaths json.RawMessage `json:"file_paths"`
	}
	if len(params) == 0 || json.Unmarshal(params, &in) != nil || in.FilePaths == nil || string(in.FilePaths) == "null" {
		return nil, nil
	}
	out := []string{}
	if json.Unmarshal(in.FilePaths, &out) != nil {
		return nil, env.Fail(wire.CodeInvalidParams, "file_paths must be a list of texts")
	}
	for _, p := range out {
		if err := wire.CheckPath(p); err != nil {
			return nil, env.Fail(wire.CodeInvalidParams, "file_paths: %q: %v", p, err)
		}
	}
	return out, nil
}
