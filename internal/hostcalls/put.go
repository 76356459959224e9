package hostcalls

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// putRequest are the parameters of host/artifact.put.
type putRequest struct {
	Kind  string                     `json:"kind"`
	ID    string                     `json:"id"`
	Type  string                     `json:"type"`
	Body  map[string]json.RawMessage `json:"body"`
	Files []putFile                  `json:"files"`
}

// putFile is a file of this machine, and its path in what is stored.
type putFile struct {
	Path string `json:"path"`
	File string `json:"file"`
}

// text is a field of the body that is a string; "" when it is absent or null.
func (p putRequest) text(name string) (string, error) {
	raw, ok := p.Body[name]
	if !ok {
		return "", nil
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", rpc.Errorf(rpc.CodeParams, "%s must be a text", name)
	}
	if s == nil {
		return "", nil
	}
	return *s, nil
}

// putArtifact stores a file or an image as an artifact, or an environment or agent that an image serves.
func (c *Calls) putArtifact(ctx context.Context, by *host.Caller, in putRequest) (any, error) {
	k, err := kindOf(in.Kind)
	if err != nil {
		return nil, err
	}
	switch {
	case k == store.Artifact && (in.Type == "" || in.Type == artifact.File):
		return c.putFile(ctx, by, in)
	case k == store.Artifact && in.Type == artifact.DockerImage:
		return c.putImage(ctx, by, in)
	case k == store.Env && (in.Type == "" || in.Type == env.MCPServer), k == store.Agent && (in.Type == "" || in.Type == agent.A2A):
		return c.putServed(ctx, k, in)
	}
	return nil, host.Refuse("plugins store artifacts of type %s and %s, environments of type %s and agents of type %s; this is of kind %s and type %s: store it with a bundle, agent-env bundle register",
		artifact.File, artifact.DockerImage, env.MCPServer, agent.A2A, k, diag.Repr(in.Type))
}

func (c *Calls) putFile(ctx context.Context, by *host.Caller, in putRequest) (any, error) {
	if len(in.Files) != 1 {
		return nil, rpc.Errorf(rpc.CodeParams, "an artifact of type file has one file")
	}
	about, err := in.text("description")
	if err != nil {
		return nil, err
	}
	named, err := rename(by, in.Files[0].Path, in.Files[0].File)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(named))
	return c.put(ctx, artifactstore.Put{ID: in.ID, Type: artifact.File, Description: about, Paths: []string{named}})
}

// putImage stores where an image is, which must be here or pinned: an image of this machine's engine by its name, a tarball where it lies, an image of a
// registry with its digest; or a folder that it is built of.
func (c *Calls) putImage(ctx context.Context, by *host.Caller, in putRequest) (any, error) {
	p := artifactstore.Put{ID: in.ID, Type: artifact.DockerImage}
	var folder string
	var err error
	for _, field := range []struct {
		name string
		to   *string
	}{{"description", &p.Description}, {"image_name", &p.Ref}, {"build_context_path", &folder}, {"dockerfile_path", &p.Dockerfile}} {
		text, terr := in.text(field.name)
		*field.to, err = text, errors.Join(err, terr)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(in.Files) > 1:
		return nil, rpc.Errorf(rpc.CodeParams, "an image has one file, its tarball, or none")
	case len(in.Files) == 1:
		file := in.Files[0].File
		if !filepath.IsAbs(file) {
			return nil, rpc.Errorf(rpc.CodeParams, "file must be an absolute path")
		}
		if file = filepath.Clean(file); strings.HasPrefix(file, filepath.Clean(by.Temp)+string(filepath.Separator)) {
			return nil, host.Refuse("an image's tarball stays where it is, and %s is in the plugin's temporary folder, which goes: write it elsewhere", diag.Repr(filepath.Base(file)))
		}
		p.Ref, p.Dockerfile = "docker-archive:"+file, ""
	case p.Ref == "":
		if !filepath.IsAbs(folder) {
			return nil, host.Refuse("an image needs image_name, a tarball, or build_context_path, which must be absolute")
		}
		p.Paths = []string{folder}
		return c.put(ctx, p)
	default:
		p.Dockerfile = "" // it is built already
	}
	if p.Ref, err = c.pinned(ctx, p.Ref); err != nil {
		return nil, err
	}
	return c.put(ctx, p)
}

// pinned is a reference with its digest. A name that has none is that of an image of the engine.
func (c *Calls) pinned(ctx context.Context, reference string) (string, error) {
	scheme, _, _ := strings.Cut(reference, ":")
	switch {
	case scheme == "docker-archive", scheme == "oci", scheme == "docker-daemon":
	case strings.Contains(reference, "@sha256:"):
		return reference, nil
	default:
		reference = "docker-daemon:" + reference
	}
	out, err := c.Image(ctx, reference)
	if err != nil {
		return "", told(ctx, err)
	}
	return out, nil
}

func (c *Calls) put(ctx context.Context, p artifactstore.Put) (any, error) {
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	out, err := artifactstore.New(s).Put(ctx, p)
	if err != nil {
		return nil, told(ctx, err)
	}
	return map[string]any{"id": out.ID, "version": out.Version}, nil
}

// imageFields are how a body names the image that something is made of.
var imageFields = struct{ id, version string }{"docker_image_artifact_id", "docker_image_artifact_version"}

// putServed stores an environment or agent that a stored image serves. The fields of its body are those of env.toml and agent.toml, and the image's id.
func (c *Calls) putServed(ctx context.Context, k store.Kind, in putRequest) (any, error) {
	if len(in.Files) > 0 {
		return nil, rpc.Errorf(rpc.CodeParams, "%s has no files: its image has them", k)
	}
	p := envstore.Put{Kind: k, ID: in.ID, Fields: map[string]any{}}
	var err error
	if p.Image.ID, err = in.text(imageFields.id); err != nil {
		return nil, err
	}
	if p.Description, err = in.text("description"); err != nil {
		return nil, err
	}
	for name, raw := range in.Body {
		switch {
		case name == imageFields.id, name == "description", string(raw) == "null":
			continue
		case name == imageFields.version:
			err = json.Unmarshal(raw, &p.Image.Version)
		default:
			t, l := doc.ParseJSON(name, raw) // which keeps integers
			if err = l.Err(); err == nil {
				p.Fields[name] = t.Root().Any()
			}
		}
		if err != nil {
			return nil, rpc.Errorf(rpc.CodeParams, "%s can't be read: %v", diag.Repr(name), err)
		}
	}
	if m, ok := p.Fields["metadata"]; ok && k == store.Env {
		if p.Metadata, ok = m.(map[string]any); !ok {
			return nil, rpc.Errorf(rpc.CodeParams, "metadata must be an object")
		}
		delete(p.Fields, "metadata")
	}
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	out, err := envstore.PutServed(ctx, s, p)
	if err != nil {
		return nil, told(ctx, err)
	}
	return map[string]any{"id": out.ID, "version": out.Version}, nil
}

// rename copies a plugin's file under its name in the store, which is the last part of its path there, into a folder of its own.
func rename(by *host.Caller, name, from string) (string, error) {
	if name = path.Base(name); name == "." || name == "/" || !filepath.IsLocal(name) {
		return "", rpc.Errorf(rpc.CodeParams, "a file has no name")
	}
	r, err := content(from, nil)
	if err != nil {
		return "", err
	}
	defer r.Close()
	dir, err := os.MkdirTemp(by.Temp, "put-")
	if err != nil {
		return "", err
	}
	w, err := os.Create(filepath.Join(dir, name))
	if err == nil {
		_, err = io.Copy(w, r)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return w.Name(), nil
}
