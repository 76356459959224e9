package doc

import "agentenv.internal/agentenv/internal/diag"

// Schema is a strict object: names that it lacks are faults.
type Schema struct {
	Fields []Field
	// Open lets unknown members pass.
	Open bool
}

// Field is one member of a Schema.
type Field struct {
	Name     string
	Type     Type
	Required bool
	Default  any    // as Build takes it; nil: none
	Doc      string // one line for help and JSON Schema
	User     bool   // user-scoped: dropped when a task is exported
}

// Type is what a value must be.
type Type struct {
	Kinds    []Kind   // allowed kinds; Int also satisfies Float
	Null     bool     // null is allowed too
	Elem     *Type    // of an Array's elements, or of an Object's values where Fields is nil
	Fields   *Schema  // of an Object
	OneOf    []string // allowed strings
	Min      *float64
	Max      *float64
	NonEmpty bool // a string, list or table must hold something
	// Plain takes YAML's scalars without quotes (1.0, true, 2020-01-01) where a string is wanted, as written and with a warning.
	Plain  bool
	Secret bool // its value is never shown
	// Check is more; it runs only when everything above holds. Where in its problems counts from the value; a Pos without a file
	// becomes the value's.
	Check func(Node, *diag.List)
}
