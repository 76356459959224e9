package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/judge"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/trajectory"
)

const (
	// maxDocument bounds a trajectory's document, maxFrame one screenshot.
	maxDocument = 256 << 20
	maxFrame    = 20 << 20
)

// evidence is what the judge is shown, before it is split into cases.
type evidence struct {
	base   judge.Case // without criteria and frames
	final  []judge.Frame
	spread []judge.Frame
	turn   int // the last that is graded; 0: all
}

// gather reads what the step lets the judge see.
func (e *RubricsVerifier) gather(ctx context.Context, c *step.Call) (evidence, error) {
	p, err := answerTo(c, c.Doc.Get("prompt_id").Text())
	if err != nil {
		return evidence{}, err
	}
	f, err := filterOf(c.Doc.Get("trajectory_filter"))
	if err != nil {
		return evidence{}, err
	}
	out := evidence{base: judge.Case{Task: p.Prompt, Reply: p.reply(), Policy: c.Doc.Get("grading_policy_prompt").Text()}}
	if p.ErrorType != "" {
		out.base.Reply = strings.TrimSpace(out.base.Reply + "\n[the agent ended with an error: " + p.ErrorType + ": " + p.Error + "]")
	}
	turn, _ := c.Doc.Get("grade_up_to_turn").Int()
	uses, _ := c.Doc.Get("use_trajectory").Bool()
	talks, fires := false, false
	for _, n := range c.Doc.Get("run_context_for_judge").Items() {
		talks = talks || n.Text() == "conversation"
		fires = fires || n.Text() == "trigger_log"
	}
	if uses || talks || turn > 0 {
		t, err := e.trajectory(ctx, &p)
		if err != nil {
			return out, err
		}
		steps := t.Steps
		if turn > 0 {
			steps, out.turn = upToTurn(t, int(turn)), int(turn)
			out.base.Reply = lastReply(steps)
		}
		if talks {
			out.base.Conversation = conversation(steps)
		}
		if uses {
			out.base.Trajectory = f.text(steps)
			if err := e.frames(ctx, c, &out, &f, steps); err != nil {
				return out, err
			}
		}
	}
	if fires {
		out.base.Triggers = firings(c.State)
	}
	out.base.Facts, err = facts(c)
	return out, err
}

// trajectory is what the agent did, over all turns of the prompt: each turn has a document of its own, or the last one has all of them.
func (e *RubricsVerifier) trajectory(ctx context.Context, p *prompted) (*trajectory.Trajectory, error) {
	var names []ref.Digest
	for _, raw := range p.Turns {
		if d, ok := objectIn(string(raw)); ok {
			names = append(names, d)
		}
	}
	if d, ok := objectIn(p.Trajectory); ok && len(names) == 0 {
		names = []ref.Digest{d}
	}
	var whole *trajectory.Trajectory
	for i := len(names) - 1; i >= 0; i-- {
		b, err := e.object(ctx, names[i], maxDocument)
		if err != nil {
			return nil, step.Infra(fmt.Errorf("read the trajectory: %w", err))
		}
		t, err := trajectory.Parse(b)
		if err != nil {
			return nil, step.Errorf("ValueError", "the answer to the prompt %s: %w", diag.Repr(p.ID), err)
		}
		if whole == nil {
			whole = t
			if turnsOf(t) >= len(names) {
				break
			}
			continue
		}
		whole.Steps = append(t.Steps, whole.Steps...)
	}
	if whole == nil {
		return nil, step.Errorf("NotFoundError", "the answer to the prompt %s names no trajectory; set use_trajectory to false to grade the reply alone", diag.Repr(p.ID))
	}
	for i := range whole.Steps {
		whole.Steps[i].StepID = i + 1
	}
	return whole, nil
}

func turnsOf(t *trajectory.Trajectory) int {
	n := 0
	for i := range t.Steps {
		if t.Steps[i].Source == trajectory.User {
			n++
		}
	}
	return n
}

func (e *RubricsVerifier) object(ctx context.Context, d ref.Digest, most int64) ([]byte, error) {
	r, size, err := store.OpenVerified(ctx, e.o.Store, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > most {
		return nil, fmt.Errorf("object %s has %d bytes, more than %d", d, size, most)
	}
	return io.ReadAll(r)
}

// frames loads the screenshots that the filter picks. One that is not in the store is left out, and told of in the log: what can't be seen did not
// happen.
func (e *RubricsVerifier) frames(ctx context.Context, c *step.Call, out *evidence, f *filter, steps []trajectory.Step) error {
	if !f.screenshots {
		return nil
	}
	all := f.shots(steps)
	loaded := map[string]judge.Frame{}
	load := func(shots []shot) ([]judge.Frame, error) {
		var frames []judge.Frame
		for _, s := range shots {
			fr, ok := loaded[s.name]
			if !ok {
				d, named := objectIn(s.path)
				if !named {
					c.Log.Warn("a screenshot lies nowhere that is known, and is not shown to the judge", "frame", s.name, "path", s.path)
					continue
				}
				b, err := e.object(ctx, d, maxFrame)
				if errors.Is(err, store.ErrNotFound) {
					c.Log.Warn("a screenshot is gone, and is not shown to the judge", "frame", s.name, "object", d)
					continue
				}
				if err != nil {
					return nil, step.Infra(fmt.Errorf("read the screenshot %s: %w", s.name, err))
				}
				fr = judge.Frame{Name: s.name, Media: s.media, Data: b}
				loaded[s.name] = fr
			}
			frames = append(frames, fr)
		}
		return frames, nil
	}
	var err error
	if out.final, err = load(f.final(all)); err != nil {
		return err
	}
	out.spread = out.final
	if f.perCase {
		out.spread, err = load(f.spread(all))
	}
	return err
}

// firings are what the world did, a line each.
func firings(v step.View) []string {
	var out []string
	for _, at := range []string{"metadata/agent_trigger_firings", "metadata/env_trigger_firings"} {
		for _, raw := range v.List(at) {
			out = append(out, string(raw))
		}
	}
	for _, env := range v.Under("metadata/env_trigger_state") {
		var state struct {
			Fired []json.RawMessage `json:"fired"`
		}
		if ok, err := v.Get("metadata/env_trigger_state/"+env, &state); ok && err == nil {
			for _, raw := range state.Fired {
				out = append(out, step.Unchild(env)+": "+string(raw))
			}
		}
	}
	return out
}

// facts are the values that the step lets the judge trust, in the order in which it names them.
func facts(c *step.Call) ([][2]string, error) {
	var out [][2]string
	var missing []string
	for label, p := range c.Doc.Get("context_facts_for_judge").Members() {
		v, ok := fact(c.State, strings.Split(p.Text(), "."))
		if !ok {
			missing = append(missing, diag.Repr(p.Text()))
			continue
		}
		text, isText := v.(string)
		if !isText {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, step.Errorf("ValueError", "context_facts_for_judge: %w", err)
			}
			text = string(b)
		}
		out = append(out, [2]string{label, text})
	}
	if len(missing) > 0 {
		return nil, step.Errorf("NotFoundError", "context_facts_for_judge: nothing before this step left %s in the run's context", strings.Join(missing, ", "))
	}
	return out, nil
}

// fact is the value at a dotted path, below metadata or at the context's top.
func fact(v step.View, path []string) (any, bool) {
	for _, base := range [][]string{append([]string{"metadata"}, path...), path} {
		for n := len(base); n > 0; n-- {
			at := base[0]
			for _, s := range base[1:n] {
				at = step.Child(at, s)
			}
			var val any
			if ok, err := v.Get(at, &val); !ok || err != nil {
				continue
			}
			if found, ok := inside(val, base[n:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}

func inside(v any, path []string) (any, bool) {
	for _, name := range path {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// criterion is one as the judge takes it.
func criterion(n doc.Node) (judge.Criterion, error) {
	k := judge.Criterion{ID: n.Get("id").Text(), Text: n.Get("criterion").Text(), Weight: 1}
	if w, ok := n.Get("weight").Float(); ok {
		k.Weight = w
	}
	k.PassAt, _ = n.Get("pass_threshold").Float()
	switch o := n.Get("outcomes"); o.Kind() {
	case doc.Array:
		for i, x := range o.Items() {
			score, ok := x.Get("score").Float()
			if !ok {
				return k, fmt.Errorf("%s: outcomes[%d] has no score", diag.Repr(k.ID), i)
			}
			k.Outcomes = append(k.Outcomes, judge.Outcome{Label: x.Get("label").Text(), Score: score})
		}
	case doc.Object:
		low, okLow := o.Get("min").Float()
		high, okHigh := o.Get("max").Float()
		if !okLow || !okHigh || !(low < high) {
			return k, fmt.Errorf("%s: outcomes needs a min below its max", diag.Repr(k.ID))
		}
		k.Range = &[2]float64{low, high}
	default: // none: any score from 0 to 1
	}
	return k, nil
}
