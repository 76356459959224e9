package report

import (
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

func (p *page) head(r *Report) {
	p.add(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s – eval report</title>
<style>
%s</style>
</head>
<body>
`, text(r.Eval), style)
	name := "Eval run"
	if r.Eval != "" {
		name = text(r.Eval)
	}
	p.add("<h1>%s", name)
	if r.Version > 0 {
		p.add(` <span class="soft">v%d</span>`, r.Version)
	}
	p.add("</h1>\n<p>Eval run <code>%s</code>, %s × %d, begun %s</p>\n", text(r.ID), diag.Count(len(r.Tasks), "task"), r.K, r.Created.UTC().Format("2006-01-02 15:04 UTC"))
	if r.Scripted {
		p.add(`<p class="warn">A scripted model played a written dialogue in this eval: its figures show that the tasks work, and say nothing of any model.</p>` + "\n")
	}
	if r.TakenOver > 0 {
		p.add(`<p class="warn">A person took over a computer in %d of %d trials: what they scored isn't the agent's alone.</p>`+"\n", r.TakenOver, r.N)
	}
	if r.Missing > 0 {
		how := "<code>agent-env runs resume</code> goes on with single runs."
		if r.Stored {
			how = "<code>agent-env eval run --resume " + text(r.ID) + "</code> goes on with them."
		}
		p.add(`<p class="warn">%d of %d trials have no end on record. %s</p>`+"\n", r.Missing, r.N, how)
	}
}

func (p *page) cards(r *Report) {
	card := func(figure, what string) {
		p.add("<div class=\"card\"><b>%s</b><span>%s</span></div>\n", text(figure), text(what))
	}
	p.add("<div class=\"cards\">\n")
	mean := "mean score"
	if r.Interval != nil {
		mean += ", 95 %: " + intervalText(r.Interval)
	}
	card(score(r.Mean), mean)
	p.add("<div class=\"card\"><b>%d of %d</b><span>trials passed</span></div>\n", r.Passed, r.N)
	card(first(r.PassAt), "pass@1")
	card(last(r.PassAt), "pass@k")
	card(last(r.PassHat), "pass^k")
	card(usdText(r.Cost), "spent on models")
	card(secondsText(r.Wall), "from start to end, "+secondsText(r.Seconds)+" of runs")
	if r.Detectable != nil {
		card(figure(*r.Detectable), "smallest difference to another such run that would be found")
	}
	p.add("</div>\n")
}

func (p *page) outcomes(r *Report) {
	all := outcomes(&r.Counts)
	p.add(`<h2>Outcomes</h2>` + "\n" + `<svg viewBox="0 0 1000 26" width="1000" height="26" role="img" aria-label="Trials by outcome">`)
	for _, o := range all {
		if o.N > 0 {
			p.add(`<rect class="%s" x="%.2f" y="0" width="%.2f" height="26"><title>%d %s</title></rect>`, o.Class, o.X, o.W, o.N, text(o.Name))
		}
	}
	p.add("</svg>\n<p>")
	for _, o := range all {
		p.add(`<span class="key %s"><i></i><span>%d %s</span></span>`, o.Class, o.N, text(o.Name))
	}
	p.add("</p>\n<p>%d trials in all. Trials that could not be run, were cancelled or have no score are in no mean.</p>\n", r.N)
}

func (p *page) plot(q *plot) {
	p.add(`<div class="wide"><svg viewBox="0 0 %g %g" width="%g" height="%g" role="img">`+"\n", q.Width, q.Height, q.Width, q.Height)
	for _, t := range q.Ticks {
		p.add(`<g transform="translate(%g 0)"><line class="grid" x1="%.1f" x2="%.1f" y1="0" y2="%g"/><text x="%.1f" y="%g" dy="-4" dx="4">%s</text></g>`+"\n",
			q.Left, t.X, t.X, q.Height, t.X, q.Height, text(t.Text))
	}
	for _, b := range q.Bars {
		p.add(`<g><title>%s: %s</title><text class="name" x="%g" dx="-10" y="%g" dy="4" text-anchor="end">%s</text>`+"\n"+`<g transform="translate(%g %g)">`,
			text(b.Full), text(b.Value), q.Left, b.Mid, text(b.Label), q.Left, b.Y)
		if b.Has {
			p.add(`<rect class="bar" x="0" y="7" width="%.1f" height="12"/>`, b.X)
		}
		for _, d := range b.Dots {
			p.add(`<circle class="dot" cx="%.1f" cy="13" r="3"/>`, d)
		}
		if b.Interval {
			p.add(`<line class="err" x1="%.1f" x2="%.1f" y1="13" y2="13"/>`, b.Low, b.High)
		}
		if b.Has {
			p.add(`<rect class="mean" x="%.1f" y="5" width="3" height="16" transform="translate(-1.5 0)"/>`, b.X)
		}
		p.add(`<text x="572" y="13" dy="4">%s</text></g></g>`+"\n", text(b.Value))
	}
	p.add("</svg></div>\n")
}

func (p *page) curve(c *curve) {
	p.add("<h2>Passing in k tries</h2>\n"+`<svg viewBox="-46 -12 %.0f 270" width="600" height="270" style="overflow: visible" role="img" aria-label="pass@k and pass^k">`+"\n", c.Width)
	for _, t := range c.YTicks {
		p.add(`<line class="grid" x1="0" x2="%g" y1="%g" y2="%g"/><text x="-8" y="%g" dy="4" text-anchor="end">%s</text>`, c.Width, t.X, t.X, t.X, text(t.Text))
	}
	for _, t := range c.XTicks {
		p.add(`<text x="%.1f" y="%g" dy="20" text-anchor="middle">%s</text>`, t.X, c.Height, text(t.Text))
	}
	p.add(`<polyline class="at" points="%s"/><polyline class="hat" points="%s"/>`+"\n", c.At, c.Hat)
	for _, t := range c.Points {
		p.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="4"><title>%s</title></circle>`, t.Class, t.X, t.Y, text(t.Text))
	}
	p.add("\n</svg>\n" + `<p><span class="key" style="color: var(--mark)"><i></i><span>pass@k: at least one of k passes</span></span>` +
		`<span class="key" style="color: var(--hat)"><i></i><span>pass^k: all of k pass</span></span></p>` + "\n")
}

func (p *page) tables(r *Report) {
	p.add(`<h2>Tasks</h2>
<div class="wide"><table>
<tr><th>task</th><th>n</th><th>passed</th><th>mean</th><th>95 %%</th><th>pass@1</th><th>pass@k</th><th>pass^k</th><th>not run</th><th>no score</th><th>cost</th><th>time</th></tr>
`)
	for i := range r.Tasks {
		t := &r.Tasks[i]
		p.add("<tr><td>%s</td><td>%d</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%d</td><td>%d</td><td>%s</td><td>%s</td></tr>\n", text(t.ID), t.N, t.Passed,
			score(t.Mean), intervalText(t.Interval), first(t.PassAt), last(t.PassAt), last(t.PassHat), t.InfraFailed, t.Unscored, usdText(t.Cost), secondsText(t.MeanSeconds))
	}
	p.add(`</table></div>
<details><summary>All %d trials</summary>
<div class="wide"><table>
<tr><th>task</th><th>trial</th><th class="l">outcome</th><th>score</th><th>cost</th><th>time</th><th class="l">run</th><th class="l">why</th></tr>
`, len(r.Trials))
	for i := range r.Trials {
		t := &r.Trials[i]
		why := t.Error
		if t.TakenOver {
			why = strings.TrimPrefix(why+"; a person took over", "; ")
		}
		p.add(`<tr><td>%s</td><td>%d</td><td class="l %s">%s</td><td>%s</td><td>%s</td><td>%s</td><td class="l"><code>%s</code></td><td class="l">%s</td></tr>`+"\n", text(t.Task), t.Number,
			strings.ReplaceAll(text(string(t.Status)), "_", "-"), text(string(t.Status)), score(t.Score), usdText(t.Cost), secondsText(t.Seconds), text(t.Run), text(why))
	}
	p.add("</table></div></details>\n<h2>Where the figures are from</h2>\n<div class=\"wide\"><table>\n")
	row := func(name, value string) {
		p.add(`<tr><td>%s</td><td class="l">%s</td></tr>`+"\n", text(name), text(value))
	}
	row("agent-env", r.Program)
	for _, m := range modelLines(r.Models) {
		row("model", m)
	}
	if r.Sandbox != "" {
		row("sandboxes", r.Sandbox)
	}
	if r.Isolation != "" {
		row("weakest isolation", r.Isolation)
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		p.add(`<tr><td>%s</td><td class="l">`, text(t.ID))
		for _, v := range t.Versions {
			p.add("v%v ", v)
		}
		for _, in := range t.Inputs {
			p.add("<code>%s</code> ", text(in))
		}
		p.add("</td></tr>\n")
	}
	p.add("</table></div>\n")
}
