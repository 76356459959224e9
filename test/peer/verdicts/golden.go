package verdicts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Load reads verdicts by the names of their inputs.
func Load(file string) (map[string]Golden, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out map[string]Golden
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return out, nil
}

// Save writes verdicts, sorted by name, a line each.
func Save(file string, goldens map[string]Golden) error {
	names := make([]string, 0, len(goldens))
	for name := range goldens {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	sep := "{\n"
	for _, name := range names {
		out.WriteString(sep)
		if err := enc.Encode(name); err != nil {
			return err
		}
		out.Truncate(out.Len() - 1) // the encoder ends a value with a newline
		out.WriteString(": ")
		if err := enc.Encode(goldens[name]); err != nil {
			return err
		}
		out.Truncate(out.Len() - 1)
		sep = ",\n"
	}
	out.WriteString("\n}\n")
	return os.WriteFile(file, out.Bytes(), 0o644)
}
