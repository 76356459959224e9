package export

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Section is a part of a report, as people read it.
type Section struct {
	Title string
	Lines []string
}

// Sections are the parts of the report that say something.
func (r Report) Sections() []Section {
	all := []Section{
		{"Still needs the store", lines(r.Store)},
		{"Needs beyond core", needLines(r.Needs)},
		{"Written", lines(r.Written)},
		{"Images", lines(r.Images)},
		{"Floating", lines(r.Floating)},
		{"Left out", lines(r.LeftOut)},
	}
	var out []Section
	for _, s := range all {
		if len(s.Lines) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func lines[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

func needLines(needs []Need) []string {
	var out []string
	for _, n := range needs {
		out = append(out, fmt.Sprintf("%s: %s (%s), at %s", n.By, n.Name, n.What, strings.Join(n.Where, "; ")))
	}
	return out
}

// papers adds what tells where the bundle came from: README.md for people, provenance.json for programs.
func (x *exporter) papers() {
	x.files["README.md"] = content{text: []byte(x.readme())}
	x.files["provenance.json"] = content{text: provenance(x.report, x.options)}
}

// manifest adds a bundle.toml that requires the distributions whose types are used, if any are.
func (x *exporter) manifest(ctx context.Context) error {
	var uses []bundle.Use
	use := func(group, name, where string) {
		if from, ok := x.options.Bundle.Origin(ctx, group, name); ok {
			uses = append(uses, bundle.Use{Group: group, Type: name, Origin: from, Where: where})
		}
	}
	for _, n := range x.report.Needs {
		if n.What == stepType {
			use(bundle.StepTypes, n.Name, n.Where[0])
		}
	}
	for _, w := range x.report.Written {
		switch w.Kind {
		case ref.Env:
			use(bundle.EnvTypes, w.Type, w.Folder)
		case ref.Artifact:
			use(bundle.ArtifactTypes, w.Type, w.Folder)
		default: // agents, tasks and evals have no types
		}
	}
	d, err := x.options.Bundle.Declare(ctx, uses, false, nil)
	if err == nil && len(d.Missing) > 0 {
		x.files[bundle.ManifestName] = content{text: []byte(d.Text())}
	}
	return err
}

// readme begins with the description that lists show.
func (x *exporter) readme() string {
	var b strings.Builder
	r := x.report
	kind := strings.ToUpper(r.From.Kind[:1]) + r.From.Kind[1:]
	fmt.Fprintf(&b, "# %s %s v%d, taken from a store\n\n", kind, r.From.ID, r.From.Version)
	holds := "Everything that it uses is in this folder."
	if len(r.Store) > 0 {
		holds = "Everything that it uses is in this folder, but for what *Still needs the store* lists: that is read from the store that it came from."
	}
	fmt.Fprintf(&b, "Written by %s on %s. %s\n\n    agent-env run .\n", x.options.Program, x.options.Now.UTC().Format("2006-01-02 15:04 UTC"), holds)
	if len(r.Images) > 0 {
		b.WriteString("\nImages are built, or pulled, where it runs: that takes Docker or Podman.\n")
	}
	b.WriteString("\n## Tasks\n\n")
	for _, w := range r.Tasks {
		fmt.Fprintf(&b, "- %s\n", w)
	}
	for _, s := range r.Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		for _, l := range s.Lines {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	return b.String()
}

// provenance is the report as programs read it.
func provenance(r Report, o Options) []byte {
	n := record(
		"agent_env", strings.TrimPrefix(o.Program, "agent-env "),
		"imported_at", o.Now.UTC().Format(time.RFC3339),
		"from", r.From.record(),
		"written", r.written(),
		"images", r.imageList(),
		"store", r.storeList(),
	)
	return append(doc.JSONIndent(n), '\n')
}

// record is a table of names and values in turn, in that order.
func record(pairs ...any) doc.Node {
	n := doc.Build(map[string]any{})
	for i := 0; i < len(pairs); i += 2 {
		n = n.With(pairs[i].(string), pairs[i+1])
	}
	return n
}

// record is the origin as programs read it.
func (o Origin) record() doc.Node {
	if o.Version == 0 {
		return record(o.Kind, o.ID)
	}
	return record(o.Kind, o.ID, "version", o.Version)
}

func (r Report) written() []any {
	out := []any{}
	for _, w := range r.Written {
		n := record("folder", w.Folder, "kind", string(w.Kind), "type", w.Type)
		if w.Version > 0 { // a template has neither
			n = n.With("id", w.ID).With("version", w.Version)
		}
		out = append(out, n)
	}
	return out
}

func (r Report) imageList() []any {
	out := []any{}
	for _, i := range r.Images {
		n := record("folder", i.Folder)
		if i.Key != "" {
			n = n.With("key", i.Key)
		}
		n = n.With("id", i.ID).With("version", i.Version)
		if i.Ref != "" {
			n = n.With("ref", i.Ref)
		} else {
			n = n.With("dockerfile", i.Dockerfile).With("files", i.Files).With("bytes", i.Bytes)
		}
		out = append(out, n)
	}
	return out
}

func (r Report) storeList() []any {
	out := []any{}
	for _, s := range r.Store {
		out = append(out, record("kind", string(s.Kind), "id", s.ID, "version", s.Version, "where", s.Where, "why", s.Why))
	}
	return out
}

// size is a number of bytes for people: "52 B", "1.4 MB".
func size(n int64) string {
	const step = 1000
	if n < step {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if v /= step; v < step {
			break
		}
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
}

// shownPath is the part of a path that lists show: a file at the top, a task or eval, or an entry's folder with a slash.
func shownPath(name string) string {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 {
		return name
	}
	return parts[0] + "/" + parts[1] + "/"
}
