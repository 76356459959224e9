package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// containerName is what a box's container is called in the engine.
func containerName(id string) string { return "agentenv-" + id }

// reserve is how many threads PID 1 and its minders may have beyond the box's limit.
const reserve = 64

// capabilities are what PID 1 and its commands have: as many as a package manager or a server needs, none over the machine.
var capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
}

// container makes the box's container and starts it. What was asked of the engine is waited for also when
// ctx ends: what it makes for a caller who has gone nobody would find.
func (m *making) container(ctx context.Context, program string) (string, error) {
	o, err := m.options(program)
	if err != nil {
		return "", err
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { // not for ever
		select {
		case <-whole.Done():
		case <-time.After(asking):
			cancel()
		}
	})
	defer stop()
	m.asked = true
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	made, err := m.engine.ContainerCreate(whole, o)
	if err != nil && len(o.HostConfig.StorageOpt) > 0 && strings.Contains(err.Error(), "storage-opt") { // "--storage-opt is supported only for …"
		o.HostConfig.StorageOpt = nil
		m.record.Isolation.Limits["disk"] = "none"
		made, err = m.engine.ContainerCreate(whole, o)
	}
	if err != nil {
		m.foreign = errdefs.IsConflict(err)
		return "", m.refused("make the container", err)
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if _, err := m.engine.ContainerStart(whole, made.ID, client.ContainerStartOptions{}); err != nil {
		return "", m.refused("start the container", err)
	}
	return made.ID, nil
}

// refused is an engine's word against the container. Where it is about the device of the network, other providers may have one.
func (m *making) refused(what string, err error) error {
	if m.spec.Network != sandbox.NetNone && strings.Contains(err.Error(), guest.TUNDevice) {
		return refuse("the engine can't give a sandbox %s: %v (modprobe tun on its machine)", guest.TUNDevice, err)
	}
	return fmt.Errorf("%s: %w", what, said(err))
}

// options say what the container is to be.
func (m *making) options(program string) (client.ContainerCreateOptions, error) {
	s := m.spec
	pids := s.Pids
	if pids < math.MaxInt64-reserve {
		pids += reserve
	}
	init := false
	h := &container.HostConfig{
		NetworkMode: network.NetworkNone, CapDrop: []string{"ALL"}, CapAdd: capabilities, SecurityOpt: []string{"no-new-privileges"},
		IpcMode: container.IPCModePrivate, Init: &init,
		Resources: container.Resources{
			NanoCPUs: int64(s.CPU * 1e9), Memory: s.MemoryMB << 20, MemorySwap: s.MemoryMB << 20, PidsLimit: &pids,
		},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: program, Target: guest.ContainerProgram, ReadOnly: true},
			{Type: mount.TypeBind, Source: m.slot.path + "/" + birthName, Target: guest.ContainerBirth, ReadOnly: true},
		},
	}
	for _, a := range s.Aliases {
		h.ExtraHosts = append(h.ExtraHosts, a+":127.0.0.1")
	}
	limits := map[string]string{"cpu": "none", "memory": "none", "pids": "cgroup", "disk": "none"}
	if s.CPU > 0 {
		limits["cpu"] = "cgroup"
	}
	if s.MemoryMB > 0 {
		limits["memory"] = "cgroup"
	}
	if s.DiskMB > 0 {
		limits["disk"] = "storage driver"
		h.StorageOpt = map[string]string{"size": strconv.FormatInt(s.DiskMB, 10) + "M"}
	}
	m.record.Isolation.Limits = limits
	shown, err := m.shown()
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	h.Mounts = append(h.Mounts, shown...)
	c := &container.Config{
		Hostname: hostside.HostName(s.Name, m.slot.id), User: "0:0", WorkingDir: "/", Image: m.image.id,
		Entrypoint: []string{guest.ContainerProgram}, Env: []string{"GOMAXPROCS=2", "GOGC=50", "GODEBUG=", "GOTRACEBACK=single", "GOMEMLIMIT=off"},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels:      m.labels(),
	}
	if s.Network != sandbox.NetNone { // for PID 1, which gives the capability up before it starts a command
		h.CapAdd = append(slices.Clone(h.CapAdd), "NET_ADMIN")
		if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil { // engines turn it off in containers without a network of theirs
			h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0"}
		}
		h.Devices = []container.DeviceMapping{{PathOnHost: guest.TUNDevice, PathInContainer: guest.TUNDevice, CgroupPermissions: "rw"}}
	}
	return client.ContainerCreateOptions{Config: c, HostConfig: h, Name: containerName(m.slot.id)}, nil
}

// shown are the files of the host that the box sees.
func (m *making) shown() ([]mount.Mount, error) {
	list := slices.Clone(m.spec.Shown)
	if m.spec.Self {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's file: %w", err)
		}
		list = append(list, sandbox.Shown{From: self, At: sandbox.SelfPath})
	}
	var out []mount.Mount
	for _, s := range list {
		if _, err := os.Stat(s.From); err != nil {
			return nil, fmt.Errorf("show %s in the sandbox: %w", s.At, err)
		}
		out = append(out, mount.Mount{Type: mount.TypeBind, Source: s.From, Target: s.At, ReadOnly: true})
	}
	return out, nil
}

// labels find the container again, and tell people whose it is.
func (m *making) labels() map[string]string {
	l := map[string]string{}
	maps.Copy(l, m.spec.Labels)
	l[labelID], l[labelState] = m.slot.id, m.p.stateLabel()
	l[labelOwner], l[labelLease] = strconv.Itoa(os.Getpid()), m.record.Expires.Format(time.RFC3339)
	if m.spec.Run != "" {
		l[labelRun] = m.spec.Run
	}
	if m.spec.Key != "" {
		l[labelKey] = m.spec.Key
	}
	return l
}

// stateLabel tells the boxes of this state root from those of others in one engine.
func (p *Provider) stateLabel() string {
	sum := sha256.Sum256([]byte(p.opts.StateRoot))
	return hex.EncodeToString(sum[:8])
}

// lastWords adds what PID 1 wrote before it ended.
func (m *making) lastWords(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	logs, lerr := m.engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if lerr != nil {
		return err
	}
	defer logs.Close()
	var b bytes.Buffer
	_, _ = stdcopy.StdCopy(&b, &b, io.LimitReader(logs, 4000))
	words := strings.TrimSpace(b.String())
	if words == "" || strings.Contains(words, err.Error()) {
		return err
	}
	return fmt.Errorf("%w: %s", err, words)
}

// clear removes a box's container from the engine, whatever state it is in.
func (e *engine) clear(ctx context.Context, r *record) error {
	if err := e.removeContainer(ctx, containerName(r.ID)); err != nil {
		return fmt.Errorf("remove the container: %w", said(err))
	}
	return nil
}

// has tells whether the engine has a box's container.
func (e *engine) has(ctx context.Context, r *record) (bool, error) {
	_, err := e.ContainerInspect(ctx, containerName(r.ID), client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, said(err)
}

// removeContainer is nil when there is none. An engine may be removing it for somebody else: then it is waited for. Podman fails at one that
// is about to end by itself, so a fault of the engine's own is met a few times.
func (e *engine) removeContainer(ctx context.Context, name string) error {
	tries := 6
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		_, err := e.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case errdefs.IsInternal(err) && tries > 0:
			tries--
		case !errdefs.IsConflict(err):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}
