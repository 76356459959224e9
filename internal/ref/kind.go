package ref

// Kind is a collection of entities: ids are unique within one. A bundle's skills are artifacts.
type Kind string

const (
	Env      Kind = "env"
	Agent    Kind = "agent"
	Artifact Kind = "artifact"
	Task     Kind = "task"
	Eval     Kind = "eval"
)
