package step

import (
	"slices"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Kinds is the set of all built-in step types. Plugins add theirs to it.
func Kinds() *catalog.Set[*Kind] {
	s := catalog.New[*Kind]("step type")
	for _, family := range [][]*Kind{
		worldKinds(), dataKinds(), actKinds(), controlKinds(), verifyKinds(), rubricsKinds(), validateKinds(), reviewKinds(),
	} {
		for _, k := range family {
			s.Add(k.Name, catalog.Origin{Kind: catalog.Builtin}, k)
		}
	}
	return s
}

// DefaultAgent is the agent_name of a step that names none.
const DefaultAgent = "default-agent"

// baseFields are the fields that every step has. A kind's own field of the same name replaces one.
func baseFields() []doc.Field {
	return []doc.Field{
		must("id", doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: oneLine}, "name of the step, unique in its task"),
		must("type", name(), "step type"),
		may("version", version(), nil, "version of a stored step"),
		may("depends_on", list(doc.Type{Kinds: []doc.Kind{doc.String, doc.Object}, NonEmpty: true, Fields: &doc.Schema{
			Fields: []doc.Field{must("task_step_id", name(), "id of a step")},
		}}), nil,
			"ids of the steps it waits for; absent: every step before it; []: none"),
		may("fail_task_on_error", flag(), true, "false: a failure of this step doesn't stop the task"),
		may("retry_config", table(
			may("retry_from_step_id", name(), nil, "step to go back to: this one, or one that it depends on"),
			may("go_to_step_id", name(), nil, "older name of retry_from_step_id"),
			may("max_retries", count(0), 1, "how often this step may send the run back"),
			may("backoff_seconds", doc.Type{Kinds: []doc.Kind{doc.Float}, Min: new(0.0)}, 0, "wait before each retry"),
		), nil, "what to run again when the step fails"),
		may("timeout_seconds", seconds(), nil, "limit of the whole step"),
		may("always", flag(), false, "true: runs after a fatal failure too, to collect and clean up"),
	}
}

// Base is the schema of a step whose type is not known: the fields that every step has, and any others.
func Base() *doc.Schema { return &doc.Schema{Fields: baseFields(), Open: true} }

// checkBase holds the rules across base fields.
func checkBase(n doc.Node, l *diag.List) {
	r := n.Get("retry_config")
	if r.Kind() != doc.Object {
		return
	}
	switch have := setAmong(r, "retry_from_step_id", "go_to_step_id"); len(have) {
	case 0:
		fault(l, r, "retry_config", "step.retry", "needs retry_from_step_id")
	case 2:
		fault(l, r.Get(have[1]), "retry_config.go_to_step_id", "step.retry", "is an older name of retry_from_step_id; keep one")
	}
}

func oneLine(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); diag.Clean(s) != s {
		fault(l, n, "", "step.id", "%s holds a character that can't be printed", diag.Repr(s))
	}
}

// Schema is the whole strict schema of a step of this kind: its own fields and those that every step has.
func (k *Kind) Schema() *doc.Schema {
	k.once.Do(func() {
		k.schema = &doc.Schema{Open: k.Fields.Open}
		for _, f := range baseFields() {
			if !slices.ContainsFunc(k.Fields.Fields, func(own doc.Field) bool { return own.Name == f.Name }) {
				k.schema.Fields = append(k.schema.Fields, f)
			}
		}
		k.schema.Fields = append(k.schema.Fields, k.Fields.Fields...)
	})
	return k.schema
}

// Fill is a step with the defaults of what it leaves out. A null reads as left out. A nil Kind, that of an unknown type, has none.
func (k *Kind) Fill(n doc.Node) doc.Node {
	if k == nil {
		return n
	}
	s := k.Schema()
	for _, f := range s.Fields {
		if f.Default != nil && n.Get(f.Name).Kind() == doc.Null {
			n = n.With(f.Name, f.Default)
		}
	}
	return s.Fill(n)
}

// OwnsTimeout tells whether timeout_seconds has this kind's own meaning, so that the run's generic limit doesn't apply.
func (k *Kind) OwnsTimeout() bool {
	return slices.ContainsFunc(k.Fields.Fields, func(f doc.Field) bool { return f.Name == "timeout_seconds" })
}

// Rules adds what the kind's rules across fields find in a step whose fields have the right types.
func (k *Kind) Rules(n doc.Node, l *diag.List) {
	checkBase(n, l)
	if k.Check != nil {
		k.Check(n, l)
	}
}

func env(path, version string) Ref { return Ref{Path: path, Kind: ref.Env, Version: version} }

func agent(path, version string) Ref { return Ref{Path: path, Kind: ref.Agent, Version: version} }

// script is a field that names a model, which may be a scripted one: "scripted:" and the artifact that holds its script.
func script(path string) Ref {
	return Ref{Path: path, Kind: ref.Artifact, Type: "file", Prefix: ScriptedPrefix}
}

// ScriptedPrefix begins the name of a model that plays a script; the artifact that holds it follows.
const ScriptedPrefix = "scripted:"

func artifact(path, version, typ string) Ref {
	return Ref{Path: path, Kind: ref.Artifact, Version: version, Type: typ}
}
