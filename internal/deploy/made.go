package deploy

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/treestore"
)

const (
	// pythonFolder is where the packages of a process's requirements are in its box.
	pythonFolder = "/opt/agentenv/python"
	// makeLimit bounds a build, and an installation of packages.
	makeLimit = 20 * time.Minute
	// DefaultPythonIndex is where packages come from when nothing else is configured.
	DefaultPythonIndex = "https://pypi.org/simple"
	// Bounds of what is made.
	maxMadeBytes = 16 << 30
	maxMadeFiles = 1_000_000
	// systemPath is the PATH of boxes.
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// packages holds the tree with what a part's requirements ask for, installed once for a file of requirements, an index and a Python. Nothing of it ever
// runs outside a box, and its box reaches the index alone.
func (m *maker) packages(ctx context.Context, r EnvRequest, p envstore.Part) (*treestore.Held, error) {
	file, err := fileOf(p.Source.Files, p.Source.Process.Python)
	if err != nil {
		return nil, err
	}
	index := m.options.PythonIndex
	if index == "" {
		index = DefaultPythonIndex
	}
	// A file of requirements may name others of the folder, and the folder itself.
	key := keyOf("python with its short name", string(p.Source.Digest), file.Path, index, pythonOf())
	return m.get(ctx, key, func(ctx context.Context, dir string) error {
		egress, err := egressOf(ctx, index)
		if err != nil {
			return err
		}
		return m.make(ctx, r, job{
			what: "install " + file.Path, of: p.Name, name: "packages of " + p.Name, files: p.Source.Files, from: pythonFolder, to: dir,
			spec:    sandbox.Spec{Network: sandbox.NetAllow, Egress: egress, Lease: 2 * makeLimit},
			command: []string{"sh", "-euc", installScript, "install", file.Path, pythonFolder, index},
		})
	})
}

// installScript installs a file of requirements into a folder, by whichever installer the machine has.
const installScript = `
install_into() {
  "$@"
  if [ ! -e "$folder/bin/python" ]; then # most machines have python3 alone
    mkdir -p "$folder/bin"
    printf '#!/bin/sh\nexec python3 "$@"\n' >"$folder/bin/python"
    chmod 755 "$folder/bin/python"
  fi
  exit 0
}
folder=$2
mkdir -p "$folder"
if command -v uv >/dev/null; then
  install_into uv pip install --no-cache --python python3 --target "$2" --default-index "$3" -r "$1"
fi
if python3 -m pip --version >/dev/null 2>&1; then
  install_into python3 -m pip install --no-cache-dir --disable-pip-version-check --no-input --target "$2" --index-url "$3" -r "$1"
fi
if python3 -m venv /tmp/installer >/dev/null 2>&1; then
  install_into /tmp/installer/bin/pip install --no-cache-dir --disable-pip-version-check --no-input --target "$2" --index-url "$3" -r "$1"
fi
echo "there is neither uv nor pip on this machine's system path: install one" >&2
exit 1
`

// build holds the folder as its build command leaves it, made once for a folder and a command. Its box has no network, so that equal folders give equal trees.
func (m *maker) build(ctx context.Context, r EnvRequest, p envstore.Part) (*treestore.Held, error) {
	argv := p.Source.Process.Build
	key := keyOf("build", append([]string{string(p.Source.Digest)}, argv...)...)
	return m.get(ctx, key, func(ctx context.Context, dir string) error {
		return m.make(ctx, r, job{
			what: "build", of: p.Name, name: "build of " + p.Name, files: p.Source.Files, from: workFolder, to: dir, spec: sandbox.Spec{Lease: 2 * makeLimit}, command: argv,
		})
	})
}

func (m *maker) get(ctx context.Context, key string, build func(ctx context.Context, dir string) error) (*treestore.Held, error) {
	if m.options.Trees == nil {
		return nil, errors.New("there is no place for what has to be built")
	}
	return m.options.Trees.Get(ctx, key, func(ctx context.Context, dir string) error {
		if err := os.Chmod(dir, 0o755); err != nil { // all users of a box pass through it
			return err
		}
		return build(ctx, dir)
	})
}

// keyOf names a tree by what goes into it.
func keyOf(kind string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return kind + "-" + hex.EncodeToString(h.Sum(nil))
}

// pythonOf stands for the Python that boxes of this machine have.
func pythonOf() string {
	for _, name := range []string{"/usr/local/bin/python3", "/usr/bin/python3"} {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue
		}
		if info, err := os.Stat(real); err == nil {
			return fmt.Sprintf("%s %d %d", real, info.Size(), info.ModTime().UnixNano())
		}
	}
	return ""
}

// egressOf lets a box reach a package index, wherever this machine finds it: an index that was chosen may well be in a private network.
func egressOf(ctx context.Context, index string) (sandbox.Egress, error) {
	u, err := url.Parse(index)
	if err != nil || u.Hostname() == "" {
		return sandbox.Egress{}, errors.New("the configured index of Python packages is no URL")
	}
	port := uint16(443)
	if u.Scheme == "http" {
		port = 80
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		port = uint16(n)
	}
	out := sandbox.Egress{Ports: []uint16{port}}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		out.CIDRs = []netip.Prefix{netip.PrefixFrom(ip, ip.BitLen())}
		return out, nil
	}
	out.Hosts = []string{strings.ToLower(u.Hostname())}
	if out.Hosts[0] == "pypi.org" {
		out.Hosts = append(out.Hosts, "files.pythonhosted.org")
	}
	for _, host := range out.Hosts {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return sandbox.Egress{}, fmt.Errorf("find the index of Python packages: %w", err)
		}
		for _, ip := range ips {
			ip = ip.Unmap()
			if p := netip.PrefixFrom(ip, ip.BitLen()); !slices.Contains(out.CIDRs, p) {
				out.CIDRs = append(out.CIDRs, p)
			}
		}
	}
	return out, nil
}

func fileOf(files []artifact.Bytes, name string) (artifact.Bytes, error) {
	for _, f := range files {
		if f.Path == name && f.Link == "" && !f.Folder {
			return f, nil
		}
	}
	return artifact.Bytes{}, fmt.Errorf("its folder has no file %s, which its process file names", name)
}

// job is a command that makes a tree in a box of its own.
type job struct {
	what, name string
	of         string           // whom it is for
	files      []artifact.Bytes // put into workFolder before
	spec       sandbox.Spec
	command    []string
	from, to   string // the folder of the box that is kept, and the host's that gets it
}

// make runs a job. The error of a command that fails has the last of its output.
func (m *maker) make(ctx context.Context, r EnvRequest, j job) (err error) {
	told := m.boxes.work(Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt}, j.what, j.of)
	if told != nil {
		told.hide = m.hide
	}
	told.begin()
	defer func() { told.end(err) }()
	name := j.name
	if r.Step != "" {
		name += " for " + r.Step
	}
	if _, err := m.boxes.Create(ctx, Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt, Name: name, Provider: localProvider, Spec: j.spec}); err != nil {
		return step.Infra(err)
	}
	defer func() {
		_, _ = m.boxes.Remove(context.WithoutCancel(ctx), r.Run, name) // the run's end tries again
	}()
	box, err := m.boxes.Box(ctx, r.Run, name)
	if err != nil {
		return step.Infra(err)
	}
	if err := guest.Put(ctx, box, workFolder, putFiles(ctx, m.store, j.files)); err != nil {
		return step.Infra(fmt.Errorf("put its folder into the sandbox: %w", err))
	}
	var out tail
	res, err := guest.Output(ctx, box, guest.Command{Argv: j.command, Dir: workFolder, Timeout: makeLimit, KillTree: true},
		guest.Limits{Stdout: 1, Stderr: 1, Live: func(stderr bool, p []byte) {
			out.add(p)
			told.output(stderr, p)
		}})
	if err != nil {
		return fmt.Errorf("%s: %w", j.what, err)
	}
	if !res.Exit.OK() {
		why := ending(res.Exit, nil)
		if res.Exit.TimedOut {
			why = fmt.Errorf("it took more than %s", makeLimit)
		}
		return fmt.Errorf("%s: %w; the last that it wrote:\n%s", j.what, why, m.hide(out.last(toldOutput)))
	}
	return keep(ctx, box, j.from, j.to)
}

// keep copies a folder of a box to the host.
func keep(ctx context.Context, box guest.Box, from, to string) error {
	stream, err := box.Tree(ctx, from)
	if err != nil {
		return err
	}
	defer stream.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	in := bufio.NewReaderSize(stream, 64<<10)
	_, err = archive.Unpack(ctx, in, root, archive.Options{
		Limits: archive.Limits{Bytes: maxMadeBytes, Entries: maxMadeFiles, Ratio: 1 << 30}, KeepClashes: true, Strict: true,
	})
	if err == nil {
		_, err = io.Copy(io.Discard, in) // the sandbox's own word on it comes last
	}
	if err != nil {
		return fmt.Errorf("keep what was made: %w", err)
	}
	return nil
}

// putTree copies a folder of the host into a box.
func putTree(ctx context.Context, box guest.Box, from, to string) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	packed, err := piped(func(w io.Writer) error {
		_, err := archive.Pack(ctx, w, root, archive.PackOptions{Format: archive.Tar})
		return err
	}, func(r io.Reader) error { return box.Extract(ctx, to, r) })
	if err != nil {
		return err
	}
	return packed
}

// piped has read read what write writes, and waits for both. It ends write with io.ErrClosedPipe once read wants no more; written is write's error, err
// read's, which write's is to who reads on.
func piped(write func(w io.Writer) error, read func(r io.Reader) error) (written, err error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		done <- err
	}()
	err = read(r)
	r.CloseWithError(io.ErrClosedPipe)
	return <-done, err
}
