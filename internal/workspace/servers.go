package workspace

import (
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/pack"
)

// servers adds the pack's MCP servers to [[mcp.servers]]. One of a name that is there stays as it is.
func (d *seeder) servers() error {
	for _, s := range d.Pack.Servers {
		list := d.config.Root().Get("mcp").Get("servers")
		taken := false
		for _, have := range list.Items() {
			taken = taken || have.Get("name").Text() == s.Name
		}
		if taken || d.given(inConfig, []string{"mcp", "servers", s.Name}) {
			continue
		}
		entry, hidden, full, ok := d.server(s)
		if !ok {
			continue
		}
		if !full {
			entry["enabled"] = false
			d.out.Off = append(d.out.Off, s.Name)
		}
		for _, key := range sorted(hidden) {
			if err := d.set(inSecrets, hidden[key], "mcp", s.Name, key); err != nil {
				return err
			}
		}
		if err := d.appendTo(entry, "mcp", "servers"); err != nil {
			return err
		}
		d.record(inConfig, entry, []string{"mcp", "servers", s.Name})
		d.out.Servers = append(d.out.Servers, s.Name)
	}
	if has, _ := held(d.config.Root(), []string{"mcp", "enabled"}); len(d.out.Servers) > 0 && !has {
		return d.set(inConfig, true, "mcp", "enabled")
	}
	return nil
}

// appendTo puts a table at the end of a list of the configuration, which is made when it isn't there.
func (d *seeder) appendTo(v any, path ...string) error {
	list := nodeAt(d.config.Root(), path)
	if !list.Exists() {
		return edit(&d.config, doc.Set([]any{v}, anyPath(path)...))
	}
	return edit(&d.config, doc.Insert(v, append(anyPath(path), list.Len())...))
}

// server is a pack's server with its values in place. Strings that hold a secret go to hidden, and the configuration refers to them. full is
// false where a required value is missing, ok where the server can't be seeded.
func (d *seeder) server(s pack.Server) (entry map[string]any, hidden map[string]string, full, ok bool) {
	values, secret, full := map[string]string{}, map[string]bool{}, true
	for _, in := range s.Inputs {
		v, have := d.serverValue(s.Name, in)
		if !have || v == "" {
			full = full && !in.Required
			continue
		}
		values[in.Key], secret[in.Key] = v, in.Secret
	}
	hidden = map[string]string{}
	ok = true
	fill := func(key, text string) string {
		out := pack.Fill(text, values)
		if config.IsReference(out) {
			d.warn(s.Pos, "mcp."+s.Name, key+" refers to a secret or a variable of the environment, which no bundle may do; the server is left out", "")
			ok = false
		}
		for k := range secret {
			if secret[k] && strings.Contains(text, "${"+k+"}") {
				key = notInKeys().ReplaceAllString(key, "-")
				hidden[key] = out
				return "secret:" + strings.Join([]string{"mcp", s.Name, key}, ".")
			}
		}
		return out
	}
	entry = map[string]any{"name": s.Name, "transport": s.Transport}
	for key, v := range s.Template.Members() {
		switch key {
		case "name", "transport":
		case "args":
			args := []any{}
			for i, a := range v.Items() {
				args = append(args, fill("args-"+strconv.Itoa(i), a.Text()))
			}
			entry[key] = args
		case "env", "headers":
			t := map[string]any{}
			for k, e := range v.Members() {
				t[k] = fill(key+"-"+k, e.Text())
			}
			entry[key] = t
		case "command", "url":
			entry[key] = fill(key, v.Text())
		case "enabled":
			if on, isBool := v.Bool(); isBool {
				entry[key] = on
			}
		case "description":
			entry[key] = diag.Clean(v.Text())
		default:
		}
	}
	return entry, hidden, full, ok
}

// serverValue is what an input of a server is filled with: the operator's answer for this server, the answer for all, a variable that the
// operator grants, the default.
func (d *seeder) serverValue(server string, in pack.ServerInput) (string, bool) {
	for _, key := range []string{server + ":" + in.Key, in.Key} {
		if v := strings.TrimSpace(d.Answers.Servers[key]); v != "" {
			return v, true
		}
	}
	if in.Env != "" && d.Env != nil {
		if v, ok := d.Env(in.Env); ok && v != "" {
			return v, true
		}
	}
	return in.Default, in.HasDefault
}
