package deploy

// Reach is the base URL of a server and the way to it past the gateway; false when the environment has no server of that name.
// The caller closes idle connections.
func (v *Env) Reach(name string) (string, *Way, bool) {
	s := v.server(name)
	if s == nil {
		return "", nil, false
	}
	return s.base(), s.transport(), true
}
