package task

import (
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// Codes of what Decode finds, beside those of internal/doc and of the kinds' own rules.
const (
	CodeShape     = "task.shape"        // not a list of steps, none, or too many
	CodeType      = "task.type.unknown" // no such step type
	CodeDuplicate = "task.step.duplicate"
	CodeDepends   = "task.step.depends" // depends_on names no earlier step
	CodeRetry     = "task.step.retry"   // retry_config goes back to no ancestor
)

// MaxSteps is how many steps a task may have.
const MaxSteps = 10_000

// Options of Decode.
type Options struct {
	// AllowUnknownFields turns fields that the step types don't have into warnings, for documents of a newer release.
	AllowUnknownFields bool
}

// Decode reads a task: a list of steps. It finds every problem at once; a task with errors can't run.
//
// The task is nil only when n is no list of tables. Otherwise it is whole enough to look at the references of its steps, so that a
// caller reports those in the same answer: a step of unknown type has a nil Kind, and what depends_on names wrongly is left out.
func Decode(id string, n doc.Node, kinds *catalog.Set[*step.Kind], o Options) (*Task, diag.List) {
	d := decoder{t: &Task{ID: id, Config: n}, kinds: kinds, options: o}
	if !d.shape(n) {
		return nil, d.l
	}
	d.t.Steps = make([]Step, n.Len())
	for i, e := range n.Items() {
		d.step(i, e)
	}
	d.graph()
	return d.t, d.l
}

type decoder struct {
	t       *Task
	kinds   *catalog.Set[*step.Kind]
	options Options
	l       diag.List
	index   map[string]int // of the first step with this id
	unknown *doc.Schema    // of a step whose type is not known
	looked  int            // wrong names for which the right one was looked for
}

// fault adds a problem of the task as a whole.
func (d *decoder) fault(pos diag.Pos, code, fix, format string, args ...any) {
	d.l.Add(diag.Problem{Pos: pos, Code: code, Summary: fmt.Sprintf(format, args...), Fix: fix, Prefixed: true})
}

// shape checks that n is a list of steps.
func (d *decoder) shape(n doc.Node) bool {
	const want = "a task is a list of steps, each a table with id and type"
	switch {
	case n.Kind() != doc.Array:
		d.fault(n.Pos(), CodeShape, want, "must be a list of steps, not %s", n.Kind())
	case n.Len() == 0:
		d.fault(n.Pos(), CodeShape, "add a step, or remove the task", "has no steps")
	case n.Len() > MaxSteps:
		d.fault(n.Pos(), CodeShape, "split the task", "has %d steps; %d is the most", n.Len(), MaxSteps)
	default:
		for i, e := range n.Items() {
			if e.Kind() != doc.Object {
				d.fault(e.Pos(), CodeShape, want, "Step at position %d must be a table, not %s", i, doc.Show(e))
			}
		}
	}
	return !d.l.HasErrors()
}

// step reads step i.
func (d *decoder) step(i int, n doc.Node) {
	s := &d.t.Steps[i]
	s.Doc = n
	s.ID, _ = n.Get("id").Str()
	s.Type, _ = n.Get("type").Str()
	at := fmt.Sprintf("step at position %d", i)
	if s.ID != "" {
		at = "step " + diag.Repr(s.ID)
	}
	var l diag.List
	if e, ok := d.kinds.Get(s.Type); ok {
		s.Kind = e.Value
		s.Kind.Schema().Check(n, at, &l)
		var rules diag.List
		s.Kind.Rules(n, &rules)
		for _, p := range rules {
			p.Where = within(at, p.Where)
			l.Add(p)
		}
	} else {
		if d.unknown == nil {
			d.unknown = step.Base()
		}
		d.unknown.Check(n, at, &l)
		if s.Type != "" {
			l.Add(d.unknownType(n.Get("type"), at))
		}
	}
	for _, p := range l {
		p.Prefixed = true
		if p.Pos.File == "" {
			p.Pos = n.Pos()
		}
		if p.Code == doc.CodeUnknown && d.options.AllowUnknownFields {
			p.Severity = diag.Warning
		}
		d.l.Add(p)
	}
	s.Always, _ = n.Get("always").Bool()
	s.Tolerated = tolerated(s.Kind, n)
	if s.Kind != nil && !s.Kind.OwnsTimeout() {
		s.Timeout = duration(n.Get("timeout_seconds"))
	}
}

func (d *decoder) unknownType(n doc.Node, at string) diag.Problem {
	p := diag.Problem{Pos: n.Pos(), Where: within(at, "type"), Code: CodeType, Summary: diag.Repr(n.Text()) + " is not a known step type"}
	if why := d.kinds.Reason(n.Text()); why != "" {
		p.Summary += " (" + why + ")"
	} else if near := diag.Nearest(n.Text(), d.kinds.Names()); near != "" {
		p.Fix = "did you mean " + diag.Repr(near) + "?"
	}
	return p
}

// tolerated tells whether a failure of the step doesn't stop the task: fail_task_on_error, or its default for the kind.
func tolerated(k *step.Kind, n doc.Node) bool {
	if fatal, ok := n.Get("fail_task_on_error").Bool(); ok {
		return !fatal
	}
	if k != nil {
		for _, f := range k.Fields.Fields {
			if f.Name == "fail_task_on_error" {
				return f.Default == false
			}
		}
	}
	return false
}

// duration reads seconds; what is no number above 0 is none.
func duration(n doc.Node) time.Duration {
	v, ok := n.Float()
	if !ok || v <= 0 {
		return 0
	}
	const most = time.Duration(1<<63 - 1)
	if v >= most.Seconds() {
		return most
	}
	return time.Duration(v * float64(time.Second))
}

// within puts a place inside a step after the words for the step.
func within(at, field string) string {
	if field == "" {
		return at
	}
	return at + ": " + field
}
