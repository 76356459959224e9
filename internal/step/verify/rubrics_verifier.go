package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/judge"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Models finds the models of judges.
type Models interface {
	Name(ctx context.Context, role string, chosen map[string]string, own string) (string, error)
	Model(ctx context.Context, name, baseURL string) (model.Model, error)
	Check(ctx context.Context, name, baseURL string) error
}

// Panel is who grades where a run names no judge of its own, and how often each is asked.
type Panel struct {
	Models  []string // none: the one model of the role
	Repeats int
}

// JudgeAgents lets agents judge: the answer is a model that asks the step's agent, and what ends it.
type JudgeAgents interface {
	// Check tells why the step's judge can't be deployed here.
	Check(ctx context.Context, d doc.Node, p step.Plan) error
	// Judge is the deployed agent that the step names, or one that is deployed for it; end takes that one down.
	Judge(ctx context.Context, c *step.Call) (m model.Model, name string, end func(context.Context) error, err error)
}

// RubricsOptions are what a RubricsVerifier uses.
type RubricsOptions struct {
	Store  Store
	Models Models
	Panel  func(context.Context) (Panel, error)
	Agents JudgeAgents // nil: no agent can judge, and steps that ask for one are refused
}

// RubricsVerifier lets models grade what an agent did. A judge that gives no verdict leaves no score; an endpoint that fails is the machinery's fault.
type RubricsVerifier struct{ o RubricsOptions }

// NewRubricsVerifier makes the executor.
func NewRubricsVerifier(o RubricsOptions) *RubricsVerifier { return &RubricsVerifier{o} }

var _ step.Preflighter = (*RubricsVerifier)(nil)

// defaultBatches is how many calls are under way at once.
const defaultBatches = 4

// Preflight refuses judges that can't be had.
func (e *RubricsVerifier) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	if agent, _ := d.Get("use_agent_judge").Bool(); agent {
		if e.o.Agents == nil {
			l.Add(diag.Problem{
				Pos: d.Get("use_agent_judge").Pos(), Where: "use_agent_judge", Code: "step.judge.agent",
				Summary: "agents can't judge in this version of agent-env", Fix: "set use_agent_judge to false: a model judges",
			})
		} else if err := e.o.Agents.Check(ctx, d, p); err != nil && !errors.Is(err, store.ErrNotFound) { // the step's references tell of those
			l.Add(diag.Problem{
				Pos: d.Get("judge_a2a_agent_id").Pos(), Where: "judge_a2a_agent_id", Code: "step.judge.agent", Summary: diag.Clean(err.Error()),
				Fix: "name another agent, or set use_agent_judge to false: a model judges",
			})
		}
		return l
	}
	names, err := e.names(ctx, p.Models, d)
	if err != nil {
		l.Add(diag.Problem{Where: "default_model", Code: "step.judge.model", Summary: err.Error()})
		return l
	}
	for _, n := range names {
		if id, ok := source.Script(n); ok && p.Type != nil {
			if typ := p.Type(ctx, ref.Artifact, id, 0); typ == "" {
				l.Add(diag.Problem{
					Where: "default_model", Code: "step.judge.script", Summary: "there is no artifact " + diag.Repr(id) + " for the scripted model", Fix: "store the script, or name another model",
				})
			}
		}
		if err := e.o.Models.Check(ctx, n, d.Get("default_model_api_base").Text()); err != nil {
			l.Add(diag.Problem{Where: "default_model", Code: "step.judge.model", Summary: err.Error()})
		}
	}
	return l
}

// names are the models that grade: the one that people chose for the run, the configured panel, or the one of the role.
func (e *RubricsVerifier) names(ctx context.Context, chosen map[string]string, d doc.Node) ([]string, error) {
	if chosen[source.Judge] == "" {
		p, err := e.o.Panel(ctx)
		if err != nil {
			return nil, err
		}
		if len(p.Models) > 0 {
			return p.Models, nil
		}
	}
	n, err := e.o.Models.Name(ctx, source.Judge, chosen, d.Get("default_model").Text())
	return []string{n}, err
}

// Run judges and leaves the verification.
func (e *RubricsVerifier) Run(ctx context.Context, c *step.Call) error {
	ev, err := e.gather(ctx, c)
	if err != nil {
		return err
	}
	limit, _ := c.Doc.Get("judge_timeout_seconds").Float()
	inner, cancel := context.WithTimeout(ctx, time.Duration(limit*float64(time.Second)))
	defer cancel()
	err = e.judge(inner, c, &ev)
	if err != nil && ctx.Err() == nil && inner.Err() != nil {
		return step.Infra(step.Errorf("TimeoutError", "the judge took more than %gs", limit))
	}
	return err
}

func (e *RubricsVerifier) judge(ctx context.Context, c *step.Call, ev *evidence) (err error) {
	s, err := e.sitting(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		if end := s.end(context.WithoutCancel(ctx)); end != nil {
			c.Log.Warn("the judge's agent could not be removed; the run's end tries again", "error", end)
		}
	}()
	format := c.Doc.Get("output_format").Text()
	id := verifierID(c)
	if format != step.TrajectoryMistakes {
		one := format
		if format == step.RubricEvidenceWithMistakes {
			one = judge.Evidence
		}
		if err := s.rubric(ctx, ev, one, id); err != nil {
			return s.noVerdict(err)
		}
	}
	switch format {
	case step.TrajectoryMistakes:
		err = s.mistakes(ctx, ev, id)
	case step.RubricEvidenceWithMistakes:
		err = s.mistakes(ctx, ev, id+"-trajectory-mistakes")
	}
	if err != nil {
		return s.noVerdict(err)
	}
	return c.Out.Set(step.Child("metadata/models/judge", c.Step), s.label())
}

// sitting is the judges of one step.
type sitting struct {
	c       *step.Call
	judges  []judge.Judge
	repeats int
	end     func(context.Context) error
}

func (e *RubricsVerifier) sitting(ctx context.Context, c *step.Call) (*sitting, error) {
	s := &sitting{c: c, repeats: 1, end: func(context.Context) error { return nil }}
	if agent, _ := c.Doc.Get("use_agent_judge").Bool(); agent {
		if e.o.Agents == nil {
			return nil, step.Errorf("UnsupportedError", "agents can't judge in this version of agent-env; set use_agent_judge to false")
		}
		m, name, end, err := e.o.Agents.Judge(ctx, c)
		if err != nil {
			return nil, err
		}
		s.end, s.judges = end, []judge.Judge{{Name: name, Model: m}}
		return s, nil
	}
	names, err := e.names(ctx, c.Models, c.Doc)
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "JudgeError", Err: err})
	}
	thinking, _ := c.Doc.Get("max_thinking_tokens").Int()
	for _, n := range names {
		m, err := e.o.Models.Model(ctx, n, c.Doc.Get("default_model_api_base").Text())
		if err != nil {
			return nil, step.Infra(&step.Error{Type: "JudgeError", Err: err})
		}
		s.judges = append(s.judges, judge.Judge{Name: n, Model: m, Request: model.Request{
			Model: n, Effort: c.Doc.Get("effort").Text(), MaxThinking: int(thinking), Variant: max(c.Trial, 1) - 1,
		}})
	}
	p, err := e.o.Panel(ctx)
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "JudgeError", Err: err})
	}
	s.repeats = max(1, p.Repeats)
	return s, nil
}

// label names the judges.
func (s *sitting) label() string {
	text := ""
	for i, j := range s.judges {
		if i > 0 {
			text += ", "
		}
		text += j.Name
	}
	return text
}

// noVerdict tells a judge without a verdict, which is no score, from a judge that can't be asked, which is the machinery's fault: neither is the agent's.
func (s *sitting) noVerdict(err error) error {
	u, ok := errors.AsType[*judge.UnscoredError](err)
	switch {
	case ok:
		return unscored(s.c, u.Error(), u.Raw)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), step.IsInfra(err):
		return err
	}
	if _, typed := errors.AsType[*step.Error](err); typed {
		return err
	}
	return step.Infra(&step.Error{Type: "JudgeError", Err: fmt.Errorf("the judge can't be asked: %w", err)})
}

// sit asks the judges about one case and books what that cost.
func (s *sitting) sit(ctx context.Context, k judge.Case) (judge.Panel, error) {
	p, err := judge.Sit(ctx, s.judges, s.repeats, k)
	if u := p.Usage; u != (model.Usage{}) {
		s.c.Spent(step.Cost{USD: u.USD, InputTokens: u.Input, OutputTokens: u.Output})
	}
	for i := range p.Opinions {
		o := &p.Opinions[i]
		if o.Err != nil {
			s.c.Log.Info("a judge gave no verdict", "judge", o.Judge, "repeat", o.Repeat, "error", o.Err, "raw", o.Verdict.Raw)
			continue
		}
		s.c.Log.Info("judged", "judge", o.Judge, "repeat", o.Repeat, "retries", o.Verdict.Retries, "raw", o.Verdict.Raw)
	}
	return p, err
}

// judged is what a rubric leaves beside what every verification has.
type judged struct {
	step.Verification
	Format    string             `json:"format"`
	Output    string             `json:"judge_output_format"`
	Judges    []string           `json:"judge_models"`
	Repeats   int                `json:"judge_repeats"`
	Agreement *float64           `json:"judge_agreement,omitempty"` // share of pairs of opinions that say the same; absent with one opinion
	Retries   int                `json:"judge_output_retries"`
	NoVerdict int                `json:"judge_opinions_without_verdict,omitempty"`
	Batches   int                `json:"judge_batches,omitempty"`
	UpToTurn  int                `json:"graded_up_to_turn,omitempty"`
	Cost      step.Cost          `json:"judge_cost"`
	Findings  []judge.Finding    `json:"findings,omitempty"`
	Coverage  *float64           `json:"coverage,omitempty"`
	Summary   string             `json:"summary,omitempty"`
	Opinions  map[string]float64 `json:"judge_scores,omitempty"` // by judge and repeat, where there are several
}

func (s *sitting) empty(format string, ev *evidence) judged {
	j := judged{
		Verification: step.Verification{Step: s.c.Step, Results: []step.Row{}}, Format: format, Output: s.c.Doc.Get("output_format").Text(),
		Repeats: s.repeats, UpToTurn: ev.turn,
	}
	for _, k := range s.judges {
		j.Judges = append(j.Judges, k.Name)
	}
	return j
}

func (j *judged) add(p *judge.Panel) {
	for i := range p.Opinions {
		j.Retries += p.Opinions[i].Verdict.Retries
		if p.Opinions[i].Err != nil {
			j.NoVerdict++
		}
	}
	j.Cost.USD += p.Usage.USD
	j.Cost.InputTokens += p.Usage.Input
	j.Cost.OutputTokens += p.Usage.Output
}

// rubric grades by the step's criteria, in batches where it asks for them.
func (s *sitting) rubric(ctx context.Context, ev *evidence, format, id string) error {
	cases, err := s.cases(ev, format)
	if err != nil {
		return err
	}
	panels, err := s.all(ctx, cases)
	if err != nil {
		return err
	}
	out := s.empty(format, ev)
	if len(cases) > 1 {
		out.Batches = len(cases)
	}
	rows := map[string]judge.Row{}
	agree, n := 0.0, 0
	for i := range panels {
		out.add(&panels[i])
		for _, r := range panels[i].Rows {
			rows[r.ID] = r
		}
		agree += panels[i].Agreement * float64(len(panels[i].Rows))
		n += len(panels[i].Rows)
	}
	if len(s.judges)*s.repeats > 1 {
		out.Agreement = new(agree / float64(n))
	}
	for i, k := range s.c.Doc.Get("criteria").Items() {
		row := step.Row{}
		for name, v := range k.Members() {
			row[name] = v.Any()
		}
		r := rows[k.Get("id").Text()]
		row["criterion_index"], row["score"], row["result"], row["justification"] = i, r.Score, r.Pass, r.Justification
		if format == judge.Partial {
			row["raw_score"] = r.Raw
		}
		if format == judge.Evidence {
			row["frame"], row["evidence_status"] = r.Frame, r.Status
		}
		out.Results = append(out.Results, row)
	}
	out.Score = Aggregate(out.Results, s.c.Doc.Get("score_aggregator").Text())
	s.c.Log.Info("verified", "verifier", id, "score", out.Score, "rows", len(out.Results), "judges", s.label())
	return s.c.Out.Set(step.Child(step.VerificationsPath, id), out)
}

// cases splits the criteria: by what they look at, where frames are picked for each, and into batches.
func (s *sitting) cases(ev *evidence, format string) ([]judge.Case, error) {
	size, _ := s.c.Doc.Get("judge_batch_size").Int()
	perCase := s.c.Doc.Get("trajectory_filter").Get("frame_strategy").Text() == "per_criterion"
	groups := map[string][]judge.Criterion{}
	for _, n := range s.c.Doc.Get("criteria").Items() {
		k, err := criterion(n)
		if err != nil {
			return nil, step.Errorf("ValueError", "criteria: %w", err)
		}
		by := ""
		if perCase && n.Get("backend").Text() == "final_state" {
			by = "final"
		}
		groups[by] = append(groups[by], k)
	}
	var out []judge.Case
	for _, by := range slices.Sorted(maps.Keys(groups)) {
		k := ev.base
		k.Format, k.Frames = format, ev.spread
		if by == "final" {
			k.Frames = ev.final
		}
		all := groups[by]
		n := len(all)
		if size > 0 {
			k.Batch, n = true, int(size)
		}
		for batch := range slices.Chunk(all, n) {
			k.Criteria = batch
			out = append(out, k)
		}
	}
	return out, nil
}

// all judges the cases, so many at once. The first failure ends the others, but a missing verdict gives way to a fault of the machinery.
func (s *sitting) all(ctx context.Context, cases []judge.Case) ([]judge.Panel, error) {
	at, ok := s.c.Doc.Get("judge_batch_concurrency").Int()
	if !ok {
		at = defaultBatches
	}
	panels, errs := make([]judge.Panel, len(cases)), make([]error, len(cases))
	slots := make(chan struct{}, max(1, at))
	var wg sync.WaitGroup
	for i := range cases {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			panels[i], errs[i] = s.sit(ctx, cases[i])
		})
	}
	wg.Wait()
	var first error
	for _, err := range errs {
		if _, missing := errors.AsType[*judge.UnscoredError](err); err != nil && (first == nil || !missing) {
			first = err
		}
	}
	return panels, first
}

// mistakes lets the judges look for mistakes: the score is the mean of theirs.
func (s *sitting) mistakes(ctx context.Context, ev *evidence, id string) error {
	k := ev.base
	k.Format, k.Frames = judge.Mistakes, ev.spread
	p, err := s.sit(ctx, k)
	if err != nil {
		return err
	}
	out := s.empty(judge.Mistakes, ev)
	out.add(&p)
	n, coverage := 0, 0.0
	for i := range p.Opinions {
		o := &p.Opinions[i]
		if o.Err != nil || o.Verdict.Score == nil {
			continue
		}
		if n == 0 { // findings of several judges can't be laid over each other; the first one's stand for them
			out.Findings, out.Summary = o.Verdict.Findings, o.Verdict.Summary
		}
		n++
		out.Score += *o.Verdict.Score
		coverage += o.Verdict.Coverage
		if len(p.Opinions) > 1 {
			if out.Opinions == nil {
				out.Opinions = map[string]float64{}
			}
			out.Opinions[fmt.Sprintf("%s #%d", o.Judge, o.Repeat+1)] = *o.Verdict.Score
		}
	}
	out.Score /= float64(n)
	out.Coverage = new(coverage / float64(n))
	s.c.Log.Info("verified", "verifier", id, "score", out.Score, "findings", len(out.Findings), "judges", s.label())
	return s.c.Out.Set(step.Child(step.VerificationsPath, id), out)
}
