package env

import (
	"fmt"
	"path"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/sdk/wire"
)

// Desktop tells whether environments of a type are computers, or what computers are composed of.
func Desktop(typ string) bool { return typ == Computer || typ == ComputerApp || typ == ComputerDriver }

// Files is the field of a computer's, an app's or a driver's document that names the files of its folder.
const Files = "files"

// Display is the screen of a computer that says nothing of it.
const (
	DisplayWidth, DisplayHeight       = 1280, 800
	DisplayMaxWidth, DisplayMaxHeight = 1920, 1200
	maxSide                           = 16384
)

func desktopFields(typ string) []doc.Field {
	text := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	word := doc.Type{Kinds: []doc.Kind{doc.String}, Check: noNUL}
	argv := doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &word, Check: isArgv}
	name := doc.Field{Name: "environment_name", Type: text, Doc: "its name; absent: that of its folder"}
	skill := doc.Field{Name: "skill", Type: doc.Type{Kinds: []doc.Kind{doc.String}, Check: isSkillFolder}, Doc: "folder that holds SKILL.md"}
	switch typ {
	case Computer:
		place := doc.Type{Kinds: []doc.Kind{doc.String}, Check: isPlace}
		return []doc.Field{
			name,
			{Name: "env_provider_type", Type: text, Doc: "what deploys it; absent: gateway"},
			{Name: "image", Type: doc.Type{}, Doc: "root of the desktop; absent: the folder's Dockerfile, or this machine's own programs where it has none"},
			{Name: "driver", Type: doc.Type{}, Doc: "environment of type computer_driver; absent: the program's own driver"},
			{Name: "apps", Type: doc.Type{Kinds: []doc.Kind{doc.Array}}, Doc: "environments of type computer_app"},
			{Name: "data_paths", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &place}, Doc: "files of the home that are its data"},
			skill,
			{Name: "display", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: displaySchema()}, Doc: "the screen"},
			{Name: "settings", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: settingsSchema()}, Doc: "settings of the driver"},
		}
	case ComputerApp:
		return []doc.Field{name, skill}
	default:
		return []doc.Field{
			{Name: "module", Type: doc.Type{Kinds: []doc.Kind{doc.String}, Check: isModule}, Doc: "file and class of the driver: driver.py:Driver"},
			{Name: "command", Type: argv, Doc: "program and arguments that serve the driver, in place of module"},
			{Name: "python", Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: isInside}, Doc: "file of Python requirements to install"},
		}
	}
}

func displaySchema() *doc.Schema {
	low, high := 1.0, float64(maxSide)
	side := func(name, help string, value int) doc.Field {
		return doc.Field{Name: name, Type: doc.Type{Kinds: []doc.Kind{doc.Int}, Min: &low, Max: &high}, Default: value, Doc: help}
	}
	return &doc.Schema{Fields: []doc.Field{
		side("width", "pixels at first", DisplayWidth), side("height", "pixels at first", DisplayHeight),
		side("max_width", "pixels that it can be set to", DisplayMaxWidth), side("max_height", "pixels that it can be set to", DisplayMaxHeight),
	}}
}

// settingsSchema is that of a driver's settings but for data_paths, which is a key of its own.
func settingsSchema() *doc.Schema {
	number := func(name string, kind doc.Kind, low, high float64, help string) doc.Field {
		return doc.Field{Name: name, Type: doc.Type{Kinds: []doc.Kind{kind}, Min: &low, Max: &high}, Doc: help}
	}
	text := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	const hour, most = 3600, 1 << 30
	return &doc.Schema{Fields: []doc.Field{
		{Name: "default_space", Type: doc.Type{Kinds: []doc.Kind{doc.String}, OneOf: []string{"frame", "norm"}}, Doc: "what points mean that say no space"},
		number("default_norm_scale", doc.Int, 1, 1000000, "length of a side in the space norm"),
		number("queue_wait_s", doc.Float, 0.001, hour, "longest wait for a turn, in seconds"),
		number("tap_hold_ms", doc.Int, 0, 1000, "how long a key is held"),
		number("type_delay_ms", doc.Int, 0, 1000, "pause between characters"),
		number("max_hold_ms", doc.Int, 0, 600000, "longest time that a key stays down"),
		{Name: "layout", Type: text, Doc: "keyboard layout"},
		number("drag_duration_ms", doc.Int, 0, most, "how long a drag takes"),
		number("exec_output_bytes", doc.Int, 0, most, "most that is kept of a stream of a command"),
		number("exec_timeout_s", doc.Float, 0.001, hour, "how long a command may take"),
	}}
}

func isPlace(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if err := wire.CheckPath(s); err != nil {
		fault(l, n, "", "computer.path", "%s can't be a place in the home: %s", diag.Repr(s), err)
		return
	}
	if wire.Below(s, wire.PrivateFolder) {
		fault(l, n, "", "computer.path", "%s is where servers keep what is theirs, and no data", diag.Repr(s))
	}
}

func isSkillFolder(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); !inside(s) || s != path.Clean(s) {
		fault(l, n, "", "computer.skill", "must be a folder of this folder, such as skill, not %s", diag.Repr(s))
	}
}

// checkDesktop adds what the rules across keys find in the env.toml of a computer, an app or a driver.
func checkDesktop(typ string, n doc.Node, l *diag.List) {
	switch typ {
	case Computer:
		d := n.Get("display")
		for _, side := range []string{"width", "height"} {
			first, ok := d.Get(side).Int()
			most, limited := d.Get("max_" + side).Int()
			if ok && limited && most < first {
				fault(l, d.Get("max_"+side), "display.max_"+side, "computer.display", "is %d, less than %s, which is %d", most, side, first)
			}
		}
	case ComputerDriver:
		module, command := n.Get("module").Exists(), n.Get("command").Exists()
		switch {
		case module && command:
			fault(l, n.Get("command"), "command", "computer.driver", "module says already how the driver is served; drop one")
		case !module && !command:
			fault(l, n, "", "computer.driver", "says nothing of how the driver is served; write module = \"driver.py:Driver\" or command = [\"./driver\"]")
		}
	}
}

// Settings is the JSON text of the settings of a computer's driver, given what its document says; "" for none.
func Settings(settings, dataPaths doc.Node) string {
	all := map[string]any{}
	for name, v := range settings.Members() {
		all[name] = v
	}
	if dataPaths.Len() > 0 {
		all["data_paths"] = dataPaths
	}
	if len(all) == 0 {
		return ""
	}
	return string(doc.JSON(doc.Build(all)))
}

// Size is a screen as commands take it: "1280x800". max is the largest, at least the first in both ways.
func Size(display doc.Node) (first, largest string) {
	side := func(name string, value int64) int64 {
		if v, ok := display.Get(name).Int(); ok {
			return v
		}
		return value
	}
	w, h := side("width", DisplayWidth), side("height", DisplayHeight)
	mw, mh := side("max_width", max(w, DisplayMaxWidth)), side("max_height", max(h, DisplayMaxHeight))
	return fmt.Sprintf("%dx%d", w, h), fmt.Sprintf("%dx%d", mw, mh)
}
