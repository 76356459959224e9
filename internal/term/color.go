package term

import "fmt"

// colorModes are what SetColor takes.
var colorModes = [...]string{"auto", "always", "never"}

// SetColor sets what --color says. "auto", the default, colours terminals unless NO_COLOR is set and not empty, or TERM is dumb;
// CLICOLOR_FORCE, set to anything but 0, colours other outputs too.
func (s *Streams) SetColor(mode string) error {
	for _, m := range colorModes {
		if m == mode {
			s.color = mode
			return nil
		}
	}
	return fmt.Errorf("--color takes auto, always or never, not %q", mode)
}

// Palette colours text, or leaves it alone.
type Palette struct{ on bool }

// OutColors is the palette for text that goes to Out.
func (s *Streams) OutColors() Palette { return Palette{s.colors(s.OutTTY)} }

// ErrColors is the palette for text that goes to Err.
func (s *Streams) ErrColors() Palette { return Palette{s.colors(s.ErrTTY)} }

func (s *Streams) colors(tty bool) bool {
	if s.color != "auto" {
		return s.color == "always"
	}
	if v, _ := s.env("NO_COLOR"); v != "" {
		return false
	}
	if v, _ := s.env("CLICOLOR_FORCE"); v != "" && v != "0" {
		return true
	}
	return tty && !s.dumb()
}

func (p Palette) paint(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p Palette) Bold(text string) string   { return p.paint("1", text) }
func (p Palette) Dim(text string) string    { return p.paint("2", text) }
func (p Palette) Red(text string) string    { return p.paint("31", text) }
func (p Palette) Green(text string) string  { return p.paint("32", text) }
func (p Palette) Yellow(text string) string { return p.paint("33", text) }
func (p Palette) Cyan(text string) string   { return p.paint("36", text) }
