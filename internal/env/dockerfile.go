package env

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// instruction is one of a Dockerfile, continuation lines joined.
type instruction struct {
	line int
	word string // in upper case
	rest string
}

// instructions splits a Dockerfile. Comments and empty lines are left out.
func instructions(src string) []instruction {
	var out []instruction
	var open *instruction
	for i, line := range strings.Split(strings.ReplaceAll(src, "\r\n", "\n"), "\n") {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		more := strings.HasSuffix(text, "\\")
		text = strings.TrimSpace(strings.TrimSuffix(text, "\\"))
		if open == nil {
			word, rest, _ := strings.Cut(text, " ")
			out = append(out, instruction{i + 1, strings.ToUpper(word), strings.TrimSpace(rest)})
			open = &out[len(out)-1]
		} else {
			open.rest = strings.TrimSpace(open.rest + " " + text)
		}
		if !more {
			open = nil
		}
	}
	return out
}

// ProcessOf is the text of a process.toml that starts what a simple Dockerfile starts: one stage, the folder copied, Python requirements installed from a file,
// variables, and a command in list form. name is what problems call the Dockerfile. What it does beyond that is a problem: it needs an image, or a
// process.toml written by hand.
func ProcessOf(name string, dockerfile []byte) (string, diag.List) {
	d := simple{name: name, env: map[string]string{}}
	for _, x := range instructions(string(dockerfile)) {
		d.take(x)
	}
	d.settle()
	argv := slices.Concat(d.entrypoint, d.command)
	if len(argv) == 0 && !d.l.HasErrors() {
		d.fault(1, "no CMD or ENTRYPOINT says how the server starts")
	}
	if d.l.HasErrors() {
		return "", d.l
	}
	var b strings.Builder
	b.WriteString("command = " + tomlList(argv) + "\n")
	if d.python != "" {
		b.WriteString("python = " + tomlText(d.python) + "\n")
	}
	if d.port != 0 && d.port != DefaultPort {
		b.WriteString("port = " + strconv.Itoa(d.port) + "\n")
	}
	if len(d.names) > 0 {
		b.WriteString("\n[env]\n")
		for _, k := range d.names {
			b.WriteString(k + " = " + tomlText(d.env[k]) + "\n")
		}
	}
	if _, l := ReadProcess(ProcessFile, []byte(b.String())); l.HasErrors() {
		for _, f := range l {
			d.fault(1, "%s", f.Summary)
		}
		return "", d.l
	}
	return b.String(), nil
}

// simple gathers what a Dockerfile says.
type simple struct {
	name                string
	l                   diag.List
	stages, port        int
	python              string
	work                string // WORKDIR
	env                 map[string]string
	names               []string
	entrypoint, command []string
	copies              []copied
}

func (d *simple) fault(line int, format string, args ...any) {
	d.l.Add(diag.Problem{
		Pos: diag.Pos{File: d.name, Line: line}, Code: "process.dockerfile", Summary: fmt.Sprintf(format, args...), Fix: "write process.toml by hand, or let an engine build the image",
	})
}

func (d *simple) take(x instruction) {
	switch x.word {
	case "FROM":
		if d.stages++; d.stages > 1 {
			d.fault(x.line, "a second FROM: an image of several stages can't be told as one process")
		}
	case "EXPOSE", "LABEL", "USER", "MAINTAINER", "HEALTHCHECK", "STOPSIGNAL", "ARG":
		if x.word == "ARG" {
			d.fault(x.line, "ARG: arguments of a build aren't known here")
		}
	case "WORKDIR":
		d.work = path.Join("/", x.rest)
	case "COPY", "ADD":
		d.copy(x)
	case "ENV":
		d.variables(x)
	case "RUN":
		d.run(x)
	case "CMD":
		d.command = d.argv(x)
	case "ENTRYPOINT":
		d.entrypoint, d.command = d.argv(x), nil
	default:
		d.fault(x.line, "%s can't be told as a process", x.word)
	}
}

// copy notes what is copied; settle says what of it leaves the folder as it is.
func (d *simple) copy(x instruction) {
	f := strings.Fields(x.rest)
	for len(f) > 0 && strings.HasPrefix(f[0], "--") {
		if !strings.HasPrefix(f[0], "--chown=") && !strings.HasPrefix(f[0], "--chmod=") {
			d.fault(x.line, "%s %s copies from elsewhere", x.word, f[0])
			return
		}
		f = f[1:]
	}
	if len(f) < 2 || strings.HasPrefix(x.rest, "[") {
		d.fault(x.line, "%s is written in a form that isn't read here", x.word)
		return
	}
	to := f[len(f)-1]
	if !path.IsAbs(to) {
		to = path.Join("/", d.work, to) + strings.Repeat("/", strings.Count(to[len(to)-1:], "/"))
	}
	for _, from := range f[:len(f)-1] {
		d.copies = append(d.copies, copied{x, from, to})
	}
}

// copied is one source of a copy, with its absolute destination.
type copied struct {
	instruction
	from, to string
}

// settle checks, once the folder in which the server starts is known, that copies put everything where it is in the environment's folder.
func (d *simple) settle() {
	base := path.Join("/", d.work)
	for _, c := range d.copies {
		from := path.Clean(c.from)
		want, to := path.Join(base, from), path.Clean(c.to)
		if strings.Contains(c.from, "://") || to != want && path.Join(to, path.Base(from)) != want {
			d.fault(c.line, "%s puts %s elsewhere than it is in the folder", c.word, c.from)
		}
	}
}

func (d *simple) variables(x instruction) {
	words, ok := splitWords(x.rest)
	if name, value, _ := strings.Cut(x.rest, " "); ok && len(words) > 0 && !strings.Contains(words[0], "=") {
		words = []string{name + "=" + strings.TrimSpace(value)} // the old form: ENV name value
	}
	if !ok || strings.Contains(x.rest, "$") {
		d.fault(x.line, "ENV is written in a form that isn't read here")
		return
	}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case name == "MCP_PORT":
			d.port, _ = strconv.Atoi(value)
		case slices.Contains(Given(), name):
		default:
			if _, twice := d.env[name]; !twice {
				d.names = append(d.names, name)
			}
			d.env[name] = value
		}
	}
}

// splitWords splits at spaces outside quotes; false when a quote stays open.
func splitWords(s string) ([]string, bool) {
	var out []string
	var b strings.Builder
	var quote byte
	in := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t':
			if in {
				out = append(out, b.String())
				b.Reset()
				in = false
			}
		default:
			b.WriteByte(c)
			in = true
		}
	}
	if in {
		out = append(out, b.String())
	}
	return out, quote == 0
}

// run allows the installation of a file of requirements.
func (d *simple) run(x instruction) {
	words, ok := splitWords(x.rest)
	if ok && len(words) > 0 && slices.Contains([]string{"useradd", "adduser", "groupadd", "addgroup"}, words[0]) && !strings.ContainsAny(x.rest, "&|;<>$`") {
		return // a box's user is nobody outside, whoever it is inside
	}
	at := slices.Index(words, "install")
	if !ok || at < 0 || !slices.ContainsFunc([]string{"pip", "pip3", "python -m pip", "python3 -m pip", "uv pip"}, func(s string) bool { return strings.Join(words[:at], " ") == s }) {
		d.fault(x.line, "RUN %s: what a build runs can't be told as a process, but for pip install -r FILE", x.rest)
		return
	}
	for args := words[at+1:]; len(args) > 0; args = args[1:] {
		switch {
		case (args[0] == "-r" || args[0] == "--requirement") && len(args) > 1 && d.python == "":
			d.python = path.Clean(args[1])
			args = args[1:]
		case slices.Contains([]string{"--no-cache-dir", "--no-cache", "--system", "--upgrade", "-U", "-q", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"}, args[0]):
		default:
			d.fault(x.line, "RUN installs %s: only one file of requirements can be told as a process", args[0])
			return
		}
	}
}

// argv reads a command in list form.
func (d *simple) argv(x instruction) []string {
	var out []string
	if err := json.Unmarshal([]byte(x.rest), &out); err != nil || len(out) == 0 {
		d.fault(x.line, "%s must be a list such as [\"python3\", \"server.py\"]", x.word)
		return nil
	}
	if out[0] == "python" { // images of Python have both names, most machines the other one alone
		out[0] = "python3"
	}
	return out
}

// tomlText spells a basic string of TOML, whose escapes are those of JSON.
func tomlText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // no string fails
	}
	return strings.ReplaceAll(string(b), "\x7f", `\u007F`)
}

func tomlList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = tomlText(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// CopiesSelf tells whether a Dockerfile copies this program, as a file called Self at the top of its folder, into its image.
func CopiesSelf(dockerfile []byte) bool {
	for _, x := range instructions(string(dockerfile)) {
		if x.word != "COPY" && x.word != "ADD" {
			continue
		}
		rest := x.rest
		for strings.HasPrefix(rest, "--") {
			var flag string
			flag, rest, _ = strings.Cut(rest, " ")
			if rest = strings.TrimSpace(rest); strings.HasPrefix(flag, "--from=") {
				rest = ""
			}
		}
		var words []string
		if json.Unmarshal([]byte(rest), &words) != nil {
			words = strings.Fields(rest)
		}
		for i, w := range words {
			if i < len(words)-1 && path.Clean("/"+w) == "/"+Self {
				return true
			}
		}
	}
	return false
}
