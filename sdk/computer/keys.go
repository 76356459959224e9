package computer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key is a key by its W3C name, or a single character.
type Key string

// namedKeys are the keys that have names, but for F1 to F24.
const namedKeys = `Alt AltGraph CapsLock Control Fn FnLock Hyper Meta NumLock ScrollLock Shift Super Symbol SymbolLock Enter Tab
ArrowDown ArrowLeft ArrowRight ArrowUp End Home PageDown PageUp Backspace Clear Copy CrSel Cut Delete EraseEof ExSel Insert Paste Redo Undo Accept Again
Attn Cancel ContextMenu Escape Execute Find Help Pause Play Props Select ZoomIn ZoomOut BrightnessDown BrightnessUp Eject LogOff Power
PowerOff PrintScreen Hibernate Standby WakeUp AudioVolumeDown AudioVolumeMute AudioVolumeUp MediaPlayPause MediaStop MediaTrackNext MediaTrackPrevious
BrowserBack BrowserFavorites BrowserForward BrowserHome BrowserRefresh BrowserSearch BrowserStop`

// NamedKeys are all keys that have names.
func NamedKeys() []Key {
	var out []Key
	for n := range strings.FieldsSeq(namedKeys) {
		out = append(out, Key(n))
	}
	for i := 1; i <= 24; i++ {
		out = append(out, Key(fmt.Sprintf("F%d", i)))
	}
	return out
}

// otherSpellings are names that models and other tools use, which are refused with the right one.
const otherSpellings = `ctrl=Control control_l=Control control_r=Control ctl=Control alt_l=Alt alt_r=Alt option=Alt opt=Alt altgr=AltGraph iso_level3_shift=AltGraph
shift_l=Shift shift_r=Shift cmd=Meta command=Meta win=Meta windows=Meta super_l=Super super_r=Super meta_l=Meta meta_r=Meta caps_lock=CapsLock caps=CapsLock
num_lock=NumLock scroll_lock=ScrollLock return=Enter kp_enter=Enter linefeed=Enter esc=Escape del=Delete ins=Insert back_space=Backspace bksp=Backspace
pgup=PageUp pgdn=PageDown page_up=PageUp page_down=PageDown prior=PageUp next=PageDown pageup=PageUp pagedown=PageDown up=ArrowUp down=ArrowDown left=ArrowLeft
right=ArrowRight arrow_up=ArrowUp arrow_down=ArrowDown arrow_left=ArrowLeft arrow_right=ArrowRight menu=ContextMenu apps=ContextMenu print=PrintScreen
prtsc=PrintScreen printscrn=PrintScreen sysrq=PrintScreen break=Pause spacebar=␣ space=␣ plus=+ minus=- comma=, period=. slash=/ backslash=\ equal== semicolon=;`

// keyNames finds keys by what callers write.
type keyNames struct {
	canonical map[string]Key // by lower-case name
	hints     map[string]string
	allowed   map[Key]bool // nil: all
}

func newKeyNames(allowed []Key) *keyNames {
	k := &keyNames{canonical: map[string]Key{}, hints: map[string]string{}}
	for _, n := range NamedKeys() {
		k.canonical[strings.ToLower(string(n))] = n
	}
	for f := range strings.FieldsSeq(otherSpellings) {
		from, to, _ := strings.Cut(f, "=")
		k.hints[from] = strings.ReplaceAll(to, "␣", " ")
	}
	if allowed != nil {
		k.allowed = map[Key]bool{}
		for _, a := range allowed {
			k.allowed[a] = true
		}
	}
	return k
}

// key is a key by its name or character.
func (k *keyNames) key(name string) (Key, error) {
	key, ok := k.canonical[strings.ToLower(name)]
	if !ok {
		if r, size := utf8.DecodeRuneInString(name); size != len(name) || name == "" || r == utf8.RuneError || unicode.IsControl(r) {
			return "", k.unknown(name)
		}
		key = Key(name)
	}
	if k.allowed != nil && !k.allowed[key] {
		return "", Fail(Unsupported, "this computer has no key %s", key)
	}
	return key, nil
}

func (k *keyNames) unknown(name string) error {
	f := Fail(InvalidArgument, "%q is no key: want one character or a W3C key name", name)
	if name == "" {
		return f
	}
	if to, ok := k.hints[strings.ToLower(name)]; ok {
		return f.WithHint("write %q", to)
	}
	if sep := strings.IndexAny(name, "+-"); sep > 0 && sep < len(name)-1 {
		var parts []string
		for p := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '+' || r == '-' }) {
			if to, ok := k.hints[strings.ToLower(p)]; ok {
				p = to
			} else if c, ok := k.canonical[strings.ToLower(p)]; ok {
				p = string(c)
			}
			parts = append(parts, fmt.Sprintf("%q", p))
		}
		return f.WithHint("give each key its own entry: [%s]", strings.Join(parts, ", "))
	}
	if name == "\n" || name == "\r" {
		return f.WithHint("write %q", "Enter")
	}
	if name == "\t" {
		return f.WithHint("write %q", "Tab")
	}
	return f.WithHint("names are those of the W3C, such as Control, Enter, Escape, ArrowUp, F5")
}

// chord is keys that are pressed together.
func (k *keyNames) chord(names []string) ([]Key, error) {
	if len(names) == 0 {
		return nil, Fail(InvalidArgument, "keys is empty")
	}
	var out []Key
	for _, n := range names {
		key, err := k.key(n)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, key) {
			return nil, Fail(InvalidArgument, "the key %s is there twice", key)
		}
		out = append(out, key)
	}
	return out, nil
}

// modifiers is keys that are held during something else; none is fine.
func (k *keyNames) modifiers(names []string) ([]Key, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return k.chord(names)
}

func joined(keys []Key) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteByte('+')
		}
		b.WriteString(string(k))
	}
	return b.String()
}

// checkText refuses what can't be typed.
func checkText(text string, limit int) error {
	if text == "" {
		return Fail(InvalidArgument, "text is empty")
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return Fail(InvalidArgument, "text has %d characters, and this computer takes at most %d", n, limit)
	}
	for _, r := range text {
		if unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' {
			return Fail(InvalidArgument, "text holds the control character U+%04X", r).WithHint("press keys with computer_key")
		}
	}
	return nil
}
