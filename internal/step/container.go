package step

import (
	"encoding/json"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Container is an element of metadata/deployed_docker_containers: a container that a task has started in one of its sandboxes.
type Container struct {
	Name    string `json:"container_name"`
	Sandbox string `json:"sandbox_name"`
	// Box is the run's sandbox that the container is, by the name that it is found by.
	Box     string `json:"box_name"`
	Workdir string `json:"workdir,omitempty"`
	ID      string `json:"sandbox_id,omitempty"` // of that box
	Image   string `json:"image,omitempty"`      // of the engine
	// Tunnels are where ports of the container are reached, by port.
	Tunnels map[string]string `json:"tunnel_urls,omitempty"`
}

// ContainersPath is where run_docker_container appends a Container.
const ContainersPath = "metadata/deployed_docker_containers"

// FindContainer is the container of a name that was started last in a sandbox; names are those that the sandbox has otherwise.
func FindContainer(v View, sandbox, name string) (k Container, names []string, ok bool) {
	for _, raw := range slices.Backward(v.List(ContainersPath)) {
		var k Container
		if json.Unmarshal(raw, &k) != nil || k.Sandbox != sandbox {
			continue
		}
		if k.Name == name && k.Box != "" {
			return k, nil, true
		}
		names = append(names, k.Name)
	}
	return Container{}, names, false
}

// TargetBox is the name, for Boxes, of the sandbox or container that a step means by sandbox_name, container_name or agent_name.
func TargetBox(v View, d doc.Node) (string, error) {
	name := d.Get("container_name").Text()
	if name == "" {
		return Target(d), nil
	}
	box := d.Get("sandbox_name").Text()
	k, have, ok := FindContainer(v, box, name)
	switch {
	case ok:
		return k.Box, nil
	case len(have) > 0:
		return "", Errorf("NotFoundError", "sandbox %s has no container %s; its containers are %s", diag.Repr(box), diag.Repr(name), strings.Join(have, ", "))
	}
	return "", Errorf("NotFoundError", "no step before this one has started container %s in sandbox %s", diag.Repr(name), diag.Repr(box))
}
