package pack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Slug is a name as an id and a folder's name: lower-case letters, digits and dashes; "plugin" where nothing is left.
func Slug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if len(words) == 0 {
		return "plugin"
	}
	return strings.Join(words, "-")
}

// quoted is a text as YAML, on one line.
func quoted(text string) string { return string(doc.JSON(doc.Build(text))) }

// lines takes a name and a summary, one line each.
func lines(name, summary string) (_, _ string, err error) {
	for _, text := range []string{name, summary} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return "", "", fmt.Errorf("%s is no line of text", diag.Repr(text))
		}
	}
	if name = strings.TrimSpace(name); name == "" {
		return "", "", errors.New("the name is empty")
	}
	return name, strings.TrimSpace(summary), nil
}

// NewPlugin is the files of a new git plugin, by their names, and its id. It brings a skill to begin with.
func NewPlugin(name, summary string) (files map[string]string, id string, err error) {
	if name, summary, err = lines(name, summary); err != nil {
		return nil, "", err
	}
	id = Slug(name)
	if err := git.CheckID(id); err != nil {
		return nil, "", err
	}
	if slices.Contains(git.CoreSections(), id) {
		return nil, "", fmt.Errorf("%s is a section of the program's own, which no plugin's settings may have; choose another name", diag.Repr(id))
	}
	if summary == "" {
		summary = "What " + name + " is good for."
	}
	files = map[string]string{
		git.PluginFile: fmt.Sprintf(`id: %s
name: %s
version: 0.1.0
description: %s
# command: [bin/%s]      # a program that speaks the plugin protocol, with agentenv_plugin.json beside this file
# requires_env: []       # variables without which it can't be used
# config: {}             # defaults of its settings
# secrets: []            # keys of config that are secret
`, quoted(id), quoted(name), quoted(summary), id),
		"skills/" + id + "/SKILL.md": fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\nSay here, step by step, what an agent is to do.\n", quoted(id), quoted(summary)),
		"README.md": fmt.Sprintf("# %s\n\n%s\n\nInstall it with `agent-env plugin install URL`, and turn it on with `agent-env plugin enable %s`.\n",
			name, summary, id),
	}
	return files, id, nil
}

// ReadMember reads a member as people write it: ID=URL or ID=URL@REF.
func ReadMember(text string) (Member, error) {
	id, url, ok := strings.Cut(text, "=")
	if !ok {
		return Member{}, fmt.Errorf("%s is no member; write ID=URL or ID=URL@REF", diag.Repr(text))
	}
	m := Member{ID: id, URL: url}
	if err := git.CheckID(id); err != nil {
		return Member{}, err
	}
	// An @ may belong to the URL (git@host:path): the one before the ref is the last behind which there is a ref, and before which a URL.
	if i := strings.LastIndexByte(url, '@'); i > 0 && url[i+1:] != "" && git.CheckRef(url[i+1:]) == nil {
		if _, err := git.ParseSource(url[:i]); err == nil {
			m.URL, m.Ref = url[:i], url[i+1:]
		}
	}
	var err error
	m.Source, err = git.ParseSource(m.URL)
	return m, err
}

// NewBundle is the files of a new plugin bundle, by their names, and its id. Without members it has a line to replace.
func NewBundle(name, summary string, members []Member) (files map[string]string, id string, err error) {
	if name, summary, err = lines(name, summary); err != nil {
		return nil, "", err
	}
	id = Slug(name)
	if err := git.CheckID(id); err != nil {
		return nil, "", err
	}
	if summary == "" {
		summary = "What the plugins of " + name + " do together."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nname: %s\ndescription: %s\nplugins:\n", quoted(id), quoted(name), quoted(summary))
	var on []string
	for _, m := range members {
		on = append(on, quoted(m.ID))
		switch {
		case m.Builtin:
			fmt.Fprintf(&b, "  - { id: %s, builtin: true }\n", quoted(m.ID))
		case m.Ref != "":
			fmt.Fprintf(&b, "  - { id: %s, url: %s, ref: %s }\n", quoted(m.ID), quoted(m.URL), quoted(m.Ref))
		default:
			fmt.Fprintf(&b, "  - { id: %s, url: %s }\n", quoted(m.ID), quoted(m.URL))
		}
	}
	if len(members) == 0 {
		b.WriteString("  - { id: REPLACE_ME, url: https://example.com/REPLACE_ME, ref: v0.1.0 }\n")
	}
	fmt.Fprintf(&b, "enabled: [%s] # empty: every member\n", strings.Join(on, ", "))
	if _, l := Parse(git.BundleFile, []byte(b.String())); l.HasErrors() {
		return nil, "", l.Err()
	}
	return map[string]string{git.BundleFile: b.String()}, id, nil
}
