package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Env is an environment type: it starts and ends instances of environments that it knows.
type Env struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the environment's own fields; nil: any
	Refs        []Ref           // fields that name stored things: they hold ids when Deploy sees them
	// Check tells what is wrong with an environment. Of its files the paths and sizes are known.
	Check func(ctx context.Context, env Document, files []File) []Problem
	// Deploy starts one instance. The state that it answers is all that Reset and Close get, perhaps in another process.
	Deploy func(ctx context.Context, c *EnvCall) (Deployed, error)
	Reset  func(ctx context.Context, c *EnvCall) error
	// Close ends an instance; one that is gone is no error.
	Close func(ctx context.Context, c *EnvCall) error
}

// EnvCall is one request about an instance. Deploy has Env, Options and Files, the others State.
type EnvCall struct {
	Run, Step string
	Env       Document
	Options   Document
	State     Document
	// Files are those beside the env.toml. They can be read, and lie in one folder as they did there, until the call ends.
	Files []File
	Host  *Host
}

// Deployed is a running instance.
type Deployed struct {
	Env   DeployedEnv     `json:"env"`
	State json.RawMessage `json:"state"`
}

// DeployedEnv is how an instance is reached from this machine.
type DeployedEnv struct {
	URL      string            `json:"environment_url"`
	MCP      string            `json:"mcp_url"`
	Headers  map[string]string `json:"headers,omitempty"`
	Metadata map[string]any    `json:"metadata,omitempty"`
	// ReadsFiles: the server reads file:// addresses of this machine. Data is then handed to it as a file, which is there until data/add is answered; else its
	// bytes are, 64 MiB at most.
	ReadsFiles bool `json:"reads_files,omitempty"`
}

// EnvParams are the parameters of all env methods.
type EnvParams struct {
	Call    string          `json:"call,omitempty"`
	Entry   Entry           `json:"entry"`
	Run     string          `json:"run,omitempty"`
	Step    string          `json:"step,omitempty"`
	Env     json.RawMessage `json:"env,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Files   []File          `json:"files,omitempty"`
}

// Artifact is a type of artifacts.
type Artifact struct {
	Name        string
	Description string
	Schema      json.RawMessage // of artifact.toml's own fields; nil: any
	Refs        []Ref
	Check       func(ctx context.Context, config Document, files []File) []Problem
	// Write says what is stored of an artifact; nil stores its configuration and files as they are.
	Write func(ctx context.Context, h *Host, id string, config Document, files []File) (Written, error)
}

// File is one file of an artifact or environment: its path there, and where its content is on this machine.
type File struct {
	Path string `json:"path"`
	File string `json:"file,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// Written is what is stored of an artifact.
type Written struct {
	Body  json.RawMessage `json:"body"`
	Files []File          `json:"files"`
}

// ArtifactParams are the parameters of all artifact methods.
type ArtifactParams struct {
	Call   string          `json:"call,omitempty"`
	Entry  Entry           `json:"entry"`
	ID     string          `json:"id,omitempty"`
	Config json.RawMessage `json:"config"`
	Files  []File          `json:"files"`
}

// Methods of env and artifact types.
const (
	MethodEnvCheck      = "env/check"
	MethodEnvDeploy     = "env/deploy"
	MethodEnvReset      = "env/reset"
	MethodEnvClose      = "env/close"
	MethodArtifactCheck = "artifact/check"
	MethodArtifactWrite = "artifact/write"
)

// others answers the methods of env and artifact types.
func (s *server) others(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case MethodEnvCheck, MethodEnvDeploy, MethodEnvReset, MethodEnvClose:
		var in EnvParams
		if err := decode(params, &in); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.p.Envs, func(t Env) bool { return t.Name == in.Entry.Name })
		if i < 0 {
			return nil, rpc.Errorf(rpc.CodeParams, "there is no environment type %q here", in.Entry.Name)
		}
		return s.env(ctx, method, &s.p.Envs[i], in)
	case MethodArtifactCheck, MethodArtifactWrite:
		var in ArtifactParams
		if err := decode(params, &in); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.p.Artifacts, func(t Artifact) bool { return t.Name == in.Entry.Name })
		if i < 0 {
			return nil, rpc.Errorf(rpc.CodeParams, "there is no artifact type %q here", in.Entry.Name)
		}
		return s.artifact(ctx, method, &s.p.Artifacts[i], in)
	default:
		if strings.HasPrefix(method, "sandbox/") {
			var in SandboxParams
			if err := decode(params, &in); err != nil {
				return nil, err
			}
			return s.boxes.serve(ctx, method, in, s.host(in.Call))
		}
		return nil, rpc.Errorf(rpc.CodeNoMethod, "there is no method %q here", method)
	}
}

func (s *server) env(ctx context.Context, method string, t *Env, in EnvParams) (any, error) {
	c := &EnvCall{in.Run, in.Step, Document(in.Env), Document(in.Options), Document(in.State), in.Files, s.host(in.Call)}
	var err error
	switch method {
	case MethodEnvCheck:
		out := Problems{[]Problem{}}
		if t.Check != nil {
			out.Problems = append(out.Problems, t.Check(ctx, c.Env, c.Files)...)
		}
		return out, nil
	case MethodEnvDeploy:
		var d Deployed
		if d, err = t.Deploy(ctx, c); err == nil {
			return d, nil
		}
	case MethodEnvReset:
		if t.Reset == nil {
			return nil, rpc.Errorf(rpc.CodeNoMethod, "environments of type %s can't be reset", t.Name)
		}
		err = t.Reset(ctx, c)
	default:
		if t.Close != nil {
			err = t.Close(ctx, c)
		}
	}
	if err != nil {
		return nil, (&Call{}).answer(ctx, err)
	}
	return struct{}{}, nil
}

func (s *server) artifact(ctx context.Context, method string, t *Artifact, in ArtifactParams) (any, error) {
	if method == MethodArtifactCheck {
		out := Problems{[]Problem{}}
		if t.Check != nil {
			out.Problems = append(out.Problems, t.Check(ctx, Document(in.Config), in.Files)...)
		}
		return out, nil
	}
	if t.Write == nil {
		return Written{in.Config, in.Files}, nil
	}
	w, err := t.Write(ctx, s.host(in.Call), in.ID, Document(in.Config), in.Files)
	if err != nil {
		return nil, (&Call{}).answer(ctx, err)
	}
	return w, nil
}
