package report

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/runlog"
)

//go:embed page.css
var style string

// page writes HTML. It is no template: text/template keeps every exported method of the program in its binary.
type page struct{ b strings.Builder }

// text is a text of anybody's, safe in an element and in an attribute.
func text(s string) string { return html.EscapeString(s) }

func (p *page) add(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func score(f *float64) string {
	if f == nil {
		return "–"
	}
	return figure(*f)
}

func first(ps []eval.PassAt) string {
	if len(ps) == 0 {
		return "–"
	}
	return figure(ps[0].Value)
}

func last(ps []eval.PassAt) string {
	if len(ps) == 0 {
		return "–"
	}
	p := ps[len(ps)-1]
	return fmt.Sprintf("%s (k=%d)", figure(p.Value), p.K)
}

// HTML writes one page that needs nothing beside it: its plots are drawn in it, and it holds no script.
func (r *Report) HTML(w io.Writer) error {
	p := &page{}
	p.head(r)
	p.cards(r)
	p.outcomes(r)
	if s := r.scorePlot(); s.Any {
		p.add("<h2>Score by task</h2>")
		p.plot(&s)
		p.add("<p>The mark is the mean, the line its 95 %% interval, each dot one trial.</p>\n")
	}
	if c := r.curvePlot(); c.Any {
		p.curve(&c)
	}
	if s := r.timePlot(); s.Any {
		p.add("<h2>Time of a trial by task</h2>")
		p.plot(&s)
	}
	if s := r.costPlot(); s.Any {
		p.add("<h2>Cost by task</h2>")
		p.plot(&s)
	}
	p.tables(r)
	p.add("</body>\n</html>\n")
	_, err := io.WriteString(w, p.b.String())
	return err
}

func figure(f float64) string {
	s := fmt.Sprintf("%.3f", f)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

func intervalText(in *eval.Interval) string {
	if in == nil {
		return "–"
	}
	return figure(in.Low) + " – " + figure(in.High)
}

func secondsText(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	case s < 120:
		return fmt.Sprintf("%.1f s", s)
	case s < 7200:
		return fmt.Sprintf("%.0f min", s/60)
	default:
		return fmt.Sprintf("%.1f h", s/3600)
	}
}

func usdText(c runlog.Cost) string {
	switch {
	case c.USD > 0 && c.USD < 0.01:
		return fmt.Sprintf("$%.5f", c.USD)
	case c.USD > 0:
		return fmt.Sprintf("$%.2f", c.USD)
	case c.InputTokens+c.OutputTokens > 0:
		return fmt.Sprintf("%d tokens", c.InputTokens+c.OutputTokens)
	default:
		return "–"
	}
}

func modelLines(m map[string][]string) []string {
	var out []string
	for _, role := range slices.Sorted(maps.Keys(m)) {
		out = append(out, role+": "+strings.Join(m[role], ", "))
	}
	return out
}

// part is a piece of the bar of outcomes.
type part struct {
	Name, Class string
	N           int
	X, W        float64 // of 1000
}

func outcomes(c *eval.Counts) []part {
	all := []part{
		{Name: "passed", Class: "passed", N: c.Passed},
		{Name: "scored below 1", Class: "scored", N: c.Scored},
		{Name: "unscored", Class: "unscored", N: c.Unscored},
		{Name: "failed", Class: "failed", N: c.Failed},
		{Name: "could not be run", Class: "infra-failed", N: c.InfraFailed},
		{Name: "cancelled", Class: "cancelled", N: c.Cancelled},
	}
	x := 0.0
	for i := range all {
		if c.N > 0 {
			all[i].X, all[i].W = x, 1000*float64(all[i].N)/float64(c.N)
		}
		x += all[i].W
	}
	return all
}

const (
	labelW  = 300.0 // room for a task's name
	plotW   = 560.0 // of the axis
	rowH    = 26.0
	maxName = 44
)

// bar is one line of a plot by task.
type bar struct {
	Label, Full, Value string
	Y, Mid             float64
	X                  float64 // where the value lies, from the axis' beginning
	Low, High          float64
	Interval, Has      bool
	Dots               []float64
}

// plot is a plot by task.
type plot struct {
	Bars          []bar
	Height, Width float64
	Left          float64
	Ticks         []tick
	Any           bool
}

type tick struct {
	X    float64
	Text string
}

func (r *Report) bars(f func(*Task) (b bar)) plot {
	p := plot{Width: labelW + plotW + 90, Left: labelW, Height: float64(len(r.Tasks))*rowH + 30}
	for i := range r.Tasks {
		b := f(&r.Tasks[i])
		b.Full, b.Label = r.Tasks[i].ID, r.Tasks[i].ID
		if rs := []rune(b.Label); len(rs) > maxName {
			b.Label = "…" + string(rs[len(rs)-maxName+1:])
		}
		b.Y = float64(i) * rowH
		b.Mid = b.Y + rowH/2
		p.Bars = append(p.Bars, b)
		p.Any = p.Any || b.Has
	}
	return p
}

// scorePlot is the mean score of each task with its interval, and the scores of its trials.
func (r *Report) scorePlot() plot {
	p := r.bars(func(t *Task) bar {
		b := bar{Value: "no score"}
		if t.Mean != nil {
			b.X, b.Has, b.Value = *t.Mean*plotW, true, figure(*t.Mean)
		}
		if in := t.Interval; in != nil {
			b.Interval, b.Low, b.High = true, in.Low*plotW, in.High*plotW
		}
		for i := range r.Trials {
			if tr := &r.Trials[i]; tr.Task == t.ID && tr.Score != nil {
				b.Dots = append(b.Dots, *tr.Score*plotW)
			}
		}
		return b
	})
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		p.Ticks = append(p.Ticks, tick{v * plotW, figure(v)})
	}
	return p
}

// amount is a plot of one figure by task, from 0 to the largest.
func (r *Report) amount(of func(*Task) float64, text func(float64) string) plot {
	most := 0.0
	for i := range r.Tasks {
		most = max(most, of(&r.Tasks[i]))
	}
	p := r.bars(func(t *Task) bar {
		v := of(t)
		b := bar{Value: text(v), Has: v > 0}
		if most > 0 {
			b.X = v / most * plotW
		}
		return b
	})
	if most > 0 {
		p.Ticks = []tick{{0, "0"}, {plotW / 2, text(most / 2)}, {plotW, text(most)}}
	}
	return p
}

func (r *Report) timePlot() plot {
	return r.amount(func(t *Task) float64 { return t.MeanSeconds }, secondsText)
}

// costPlot is by USD where any is known, else by tokens.
func (r *Report) costPlot() plot {
	if r.Cost.USD > 0 {
		return r.amount(func(t *Task) float64 { return t.Cost.USD }, func(v float64) string { return fmt.Sprintf("$%.4g", v) })
	}
	return r.amount(func(t *Task) float64 { return float64(t.Cost.InputTokens + t.Cost.OutputTokens) }, func(v float64) string { return fmt.Sprintf("%.0f tokens", v) })
}

// curve is pass@k and pass^k over k.
type curve struct {
	At, Hat       string // points of a polyline
	Points        []point
	Width, Height float64
	XTicks        []tick
	YTicks        []tick
	Any           bool
}

type point struct {
	X, Y  float64
	Class string
	Text  string
}

func (r *Report) curvePlot() curve {
	const w, h = 520.0, 220.0
	c := curve{Width: w, Height: h, Any: len(r.PassAt) > 0}
	if !c.Any {
		return c
	}
	most := r.PassAt[len(r.PassAt)-1].K
	at := func(p eval.PassAt) (x, y float64) {
		if most > 1 {
			x = float64(p.K-1) / float64(most-1) * w
		}
		return x, h - p.Value*h
	}
	line := func(ps []eval.PassAt, class, name string) string {
		var out []string
		for _, p := range ps {
			x, y := at(p)
			out = append(out, fmt.Sprintf("%.1f,%.1f", x, y))
			c.Points = append(c.Points, point{x, y, class, fmt.Sprintf("%s%d = %s, over %d of the tasks", name, p.K, figure(p.Value), p.Tasks)})
		}
		return strings.Join(out, " ")
	}
	c.At, c.Hat = line(r.PassAt, "at", "pass@"), line(r.PassHat, "hat", "pass^")
	for _, p := range r.PassAt {
		x, _ := at(p)
		c.XTicks = append(c.XTicks, tick{x, fmt.Sprint(p.K)})
	}
	for _, v := range []float64{0, 0.5, 1} {
		c.YTicks = append(c.YTicks, tick{h - v*h, figure(v)})
	}
	return c
}
