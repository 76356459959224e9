package computer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/sdk/wire"
)

// Variables of the environment that a driver reads.
const (
	SettingsVariable = "AGENTENV_COMPUTER_SETTINGS"
	AppsVariable     = "AGENTENV_COMPUTER_APPS"
)

// Settings are what whoever runs a computer chooses for it.
type Settings struct {
	DataPaths        []string `json:"data_paths"`         // what data/get answers, relative to the home
	DefaultSpace     string   `json:"default_space"`      // of points: SpaceFrame or SpaceNorm
	DefaultNormScale int      `json:"default_norm_scale"` // size of the norm grid
	QueueWait        float64  `json:"queue_wait_s"`       // how long an input waits for its turn, in seconds
	TapHold          int      `json:"tap_hold_ms"`
	TypeDelay        int      `json:"type_delay_ms"`
	MaxHold          int      `json:"max_hold_ms"` // how long keys stay down at most
	Layout           string   `json:"layout"`
	DragDuration     int      `json:"drag_duration_ms"`
	ExecOutput       int      `json:"exec_output_bytes"` // of each stream of a command
	ExecTimeout      float64  `json:"exec_timeout_s"`
}

// Spaces of points: pixels of a frame's image, or a grid over it.
const (
	SpaceFrame = "frame"
	SpaceNorm  = "norm"
)

// DefaultSettings are those that nobody chose.
func DefaultSettings() Settings {
	return Settings{
		DataPaths: []string{}, DefaultSpace: SpaceFrame, DefaultNormScale: 1000, QueueWait: 30, TapHold: 50, TypeDelay: 10, MaxHold: 10000,
		Layout: "us", DragDuration: 500, ExecOutput: 1 << 20, ExecTimeout: 60,
	}
}

// Ranges of settings, both ends included.
const (
	maxNormScale = 1000000
	maxTapHold   = 1000
	maxTypeDelay = 1000
	maxHold      = 600000
	maxTimeout   = 3600
)

// ParseSettings reads a JSON object over the defaults; "" is the defaults. It tells everything that is wrong.
func ParseSettings(text string) (Settings, error) {
	s := DefaultSettings()
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	if err := readVariable(SettingsVariable, text, &s); err != nil {
		return s, err
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("%s: %w", SettingsVariable, err)
	}
	return s, nil
}

// readVariable reads the one JSON value that a variable holds.
func readVariable(name, text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return fmt.Errorf("%s: more than one JSON value", name)
	}
	return nil
}

// Check tells everything that is out of range.
func (s *Settings) Check() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, p := range s.DataPaths {
		if err := wire.CheckPath(p); err != nil {
			errs = append(errs, fmt.Errorf("data_paths: %q: %w", p, err))
		}
	}
	bad(s.DefaultSpace != SpaceFrame && s.DefaultSpace != SpaceNorm, "default_space: want frame or norm, not %q", s.DefaultSpace)
	bad(s.DefaultNormScale < 1 || s.DefaultNormScale > maxNormScale, "default_norm_scale: want 1 to %d", maxNormScale)
	bad(s.QueueWait <= 0 || s.QueueWait > maxTimeout, "queue_wait_s: want more than 0 and at most %d", maxTimeout)
	bad(s.TapHold < 0 || s.TapHold > maxTapHold, "tap_hold_ms: want 0 to %d", maxTapHold)
	bad(s.TypeDelay < 0 || s.TypeDelay > maxTypeDelay, "type_delay_ms: want 0 to %d", maxTypeDelay)
	bad(s.MaxHold < 0 || s.MaxHold > maxHold, "max_hold_ms: want 0 to %d", maxHold)
	bad(s.DragDuration < 0, "drag_duration_ms: want 0 or more")
	bad(s.ExecOutput < 0, "exec_output_bytes: want 0 or more")
	bad(s.ExecTimeout <= 0 || s.ExecTimeout > maxTimeout, "exec_timeout_s: want more than 0 and at most %d", maxTimeout)
	return errors.Join(errs...)
}
