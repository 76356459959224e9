package runlog

import (
	"encoding/json"
	"time"
)

// RunStart is the data of RunStarted.
type RunStart struct {
	Steps     []StepInfo `json:"steps"`
	Isolation string     `json:"isolation,omitempty"` // level asked
}

// StepInfo is one step as the run plans it.
type StepInfo struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// RunEnd is the data of RunEnded.
type RunEnd struct {
	Status    Status             `json:"status"`
	Scores    map[string]float64 `json:"scores,omitempty"`
	Error     string             `json:"error,omitempty"`
	ErrorType string             `json:"error_type,omitempty"`
	Step      string             `json:"step,omitempty"` // where it failed
	Left      []string           `json:"left,omitempty"` // sandboxes that could not be removed
}

// StepStart is the data of StepStarted.
type StepStart struct {
	Type string `json:"type"`
}

// StepEnd is the data of StepEnded.
type StepEnd struct {
	Status    Status          `json:"status"` // Succeeded, Failed, InfraFailed, Cancelled, Skipped
	Error     string          `json:"error,omitempty"`
	ErrorType string          `json:"error_type,omitempty"`
	Fatal     bool            `json:"fatal,omitempty"`
	Seconds   float64         `json:"seconds"`
	Diff      json.RawMessage `json:"diff,omitempty"` // step.Diff, committed with the end
}

// LogLine is the data of StepLog and Note.
type LogLine struct {
	Level   string         `json:"level"`
	Message string         `json:"message"`
	Attrs   map[string]any `json:"attrs,omitempty"`
}

// Box is the data of BoxCreated and BoxRemoved.
type Box struct {
	ID        string          `json:"id"`
	Name      string          `json:"name,omitempty"`
	Provider  string          `json:"provider"`
	Isolation json.RawMessage `json:"isolation,omitempty"` // sandbox.Isolation, as probed
	Error     string          `json:"error,omitempty"`
}

// Record is what a run's events fold to.
type Record struct {
	Summary
	Steps     []StepRecord               `json:"steps"`
	Boxes     []Box                      `json:"sandboxes,omitempty"`
	Isolation string                     `json:"isolation,omitempty"` // weakest level in force among the boxes
	Verified  map[string]json.RawMessage `json:"verifications,omitempty"`
	FailedAt  string                     `json:"failed_at,omitempty"`
	Left      []string                   `json:"left,omitempty"`
}

// StepRecord is one step of a Record; of several attempts, the last.
type StepRecord struct {
	StepInfo
	Status    Status    `json:"status"`
	Attempt   int       `json:"attempt,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Seconds   float64   `json:"seconds,omitempty"`
	Error     string    `json:"error,omitempty"`
	ErrorType string    `json:"error_type,omitempty"`
}
