package deploy

import "net/http"

// Reach is the base URL of a server and the way to it through its sandbox, past the gateway; false when the environment has no server of that name.
// The caller closes idle connections.
func (v *Env) Reach(name string) (string, *http.Transport, bool) {
	s := v.server(name)
	if s == nil {
		return "", nil, false
	}
	return "http://" + s.address(), s.transport(), true
}
