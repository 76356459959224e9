package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// pingLimit bounds the first word with an engine.
const pingLimit = 5 * time.Second

// socketPath reads an engine's address. Only sockets of this machine will do.
func socketPath(address string) (string, error) {
	path := address
	if scheme, rest, ok := strings.Cut(address, "://"); ok {
		if scheme != "unix" {
			return "", fmt.Errorf("%q is an engine elsewhere; sandboxes need the unix socket of an engine on this machine", address)
		}
		path = rest
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is not the absolute path of a socket", address)
	}
	return filepath.Clean(path), nil
}

// lookup is os.LookupEnv or a stand-in.
type lookup func(string) (string, bool)

func (l lookup) get(name string) string {
	if l == nil {
		return ""
	}
	v, _ := l(name)
	return v
}

// candidates are the sockets to try, best first, and what named the first when it alone counts.
func candidates(configured string, env lookup, uid int) (paths []string, named string, err error) {
	if configured != "" {
		p, err := socketPath(configured)
		return []string{p}, "sandbox.docker.socket", err
	}
	if host := env.get("DOCKER_HOST"); host != "" {
		p, err := socketPath(host)
		return []string{p}, "DOCKER_HOST", err
	}
	if name, host := dockerContext(env); host != "" {
		p, err := socketPath(host)
		return []string{p}, "the Docker context " + name, err
	}
	runtime := env.get("XDG_RUNTIME_DIR")
	if runtime == "" {
		runtime = "/run/user/" + strconv.Itoa(uid)
	}
	return []string{
		"/var/run/docker.sock", runtime + "/docker.sock", runtime + "/podman/podman.sock", "/run/podman/podman.sock",
	}, "", nil
}

// maxContext bounds what is read of Docker's own files.
const maxContext = 1 << 20

// dockerContext is the host of the context that Docker's own program would use, "" where that is the default one or can't be told.
func dockerContext(env lookup) (name, host string) {
	dir := env.get("DOCKER_CONFIG")
	if dir == "" {
		home := env.get("HOME")
		if home == "" {
			return "", ""
		}
		dir = filepath.Join(home, ".docker")
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if name = env.get("DOCKER_CONTEXT"); name == "" {
		if readJSON(filepath.Join(dir, "config.json"), &config) != nil {
			return "", ""
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return "", ""
	}
	sum := sha256.Sum256([]byte(name))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if readJSON(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), &meta) != nil {
		return "", ""
	}
	return name, meta.Endpoints["docker"].Host
}

func readJSON(name string, v any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxContext {
		return fmt.Errorf("%s is no file of settings", name)
	}
	return json.NewDecoder(f).Decode(v)
}

// engine is one engine.
type engine struct {
	*client.Client
	socket string
}

// findEngine is the first engine that answers.
func findEngine(ctx context.Context, configured string, env lookup, uid int) (*engine, error) {
	paths, named, err := candidates(configured, env, uid)
	if err != nil {
		return nil, refuse("%s: %v", named, err)
	}
	var errs []error
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil && named == "" {
			continue // most machines have one of them at most
		}
		e, err := openEngine(ctx, path)
		if err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, refuse("no Docker or Podman engine is here; start one, or name its socket in [sandbox.docker] socket or DOCKER_HOST")
}

// openEngine greets the engine behind a socket.
func openEngine(ctx context.Context, path string) (*engine, error) {
	c, err := client.New(client.WithHost("unix://"+path), client.WithUserAgent("agent-env"))
	if err != nil {
		return nil, fmt.Errorf("the engine at %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	got, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	switch {
	case err != nil && (errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "permission denied")):
		err = refuse("the engine's socket %s may not be opened; join the group that owns it", path)
	case err != nil:
		err = refuse("the engine at %s does not answer; start it, or name another", path)
	case got.OSType != "" && got.OSType != "linux":
		err = refuse("the engine at %s runs containers of %s, and sandboxes are Linux", path, got.OSType)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &engine{c, path}, nil
}

// said is an engine's error in one line, without what its client adds to each.
func said(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("the engine says: %w", err)
}
