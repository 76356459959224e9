//go:build integration && linux

package deploy_test

import (
	"os"
	"os/exec"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/step/world"
)

const busyboxDockerfile = `FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN mkdir -p /tmp /root /opt && echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
`

// An agent is installed into a container that the task has built and started on an engine: by the commands for a machine, and by those of an engine beside it.
func TestInstallAgentIntoContainer(t *testing.T) {
	l, d := localProvider(t, nil), engineProvider(t)
	r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: "local", Provider: l}, steptest.Named{Name: "docker", Provider: d})
	b := &agentBench{Rig: r, start: world.NewDeployAgent(r.Agents, r.Store), prompt: act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)}
	path, err := exec.LookPath("busybox")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	r.PutUniverse("@local/ctx", steptest.File{Path: "Dockerfile", Text: busyboxDockerfile}, steptest.File{Path: "busybox", Text: string(busybox), Mode: 0o755})
	r.Box()
	run := world.NewRunDockerContainer(r.Store, r.Deploy, nil, &r.Redact)
	install := world.NewInstallAgent(r.Agents)
	for name, role := range map[string]string{"host": "talker", "engine": "container-talker"} {
		r.Must(run, `{"id": "run-`+name+`", "type": "run_docker_container", "sandbox_name": "box", "docker_context_artifact_id": "@local/ctx", "container_name": "`+name+`"}`)
		container := ""
		for _, x := range r.Deploy.Live(steptest.Run) {
			if x.Box.Provider == "docker" {
				container = x.Name // the last that was started
			}
		}
		box, err := r.Deploy.Box(t.Context(), steptest.Run, container)
		if err != nil {
			t.Fatal(err)
		}
		if err := guest.Put(t.Context(), box, "/bin", []guest.PutFile{guest.PutBytes("agent-env", 0o755, self)}); err != nil {
			t.Fatal(err)
		}
		r.PutAgent("@local/"+name, `command = ["agent-env", "serve", "`+role+`"]`)
		r.Must(install, `{"id": "in-`+name+`", "type": "install_agent", "agent_name": "`+name+`", "sandbox_name": "box", "container_name": "`+name+`", "a2a_agent_id": "@local/`+name+`"}`)
		b.says(name, "note "+name, "noted", "")
		if text, err := box.ReadFile(t.Context(), "/root/notes", 100); err != nil || string(text) != name {
			t.Errorf("%q %v: it works elsewhere", text, err)
		}
		if res, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "command -v docker"}}, guest.Limits{Stdout: 100}); err != nil || res.Exit.OK() {
			t.Errorf("a docker command is left: %v", err)
		}
	}
	gone(t, r, l, d)
}
