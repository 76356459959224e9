package computer

import (
	"bufio"
	"math"
	"os"
	"runtime"
	"strings"
)

// Platform is what a desktop runs on, as the card tells it.
type Platform struct {
	OS           string `json:"os"`                     // linux, macos or windows
	Distribution string `json:"distribution,omitempty"` // ID of os-release
	Version      string `json:"version,omitempty"`      // VERSION_ID of os-release
	Arch         string `json:"arch,omitempty"`
	Display      string `json:"display,omitempty"` // x11 or wayland
}

func detectPlatform(lookup func(string) (string, bool)) Platform {
	p := Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if p.OS == "darwin" {
		p.OS = "macos"
	}
	p.Distribution, p.Version = release("/etc/os-release")
	kind, _ := lookup("XDG_SESSION_TYPE")
	x, _ := lookup("DISPLAY")
	wayland, _ := lookup("WAYLAND_DISPLAY")
	switch {
	case kind == "x11" || kind == "wayland":
		p.Display = kind
	case x != "":
		p.Display = "x11"
	case wayland != "":
		p.Display = "wayland"
	}
	return p
}

// release reads an os-release file; what isn't there is empty.
func release(path string) (id, version string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		value = strings.Trim(value, `"'`)
		switch name {
		case "ID":
			id = value
		case "VERSION_ID":
			version = value
		}
	}
	return id, version
}

func scaled(n int, scale float64) int { return int(math.RoundToEven(float64(n) * scale)) }
