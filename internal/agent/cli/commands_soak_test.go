//go:build soak

package cli

// commands are all of them: with half a dozen programs to install they are not for every day.
func commands() []string {
	var out []string
	for _, p := range Profiles() {
		out = append(out, p.Name)
	}
	return out
}
