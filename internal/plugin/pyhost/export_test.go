package pyhost

import (
	"path/filepath"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// Modules writes the modules of our own distributions below a folder, as an interpreter's path has them, without metadata.
func Modules(dir string) error {
	for _, d := range distributions() {
		members, err := d.modules()
		if err != nil {
			return err
		}
		for _, m := range members {
			file := filepath.Join(dir, filepath.FromSlash(m.name))
			if err := atomicfile.MkdirAll(filepath.Dir(file)); err != nil {
				return err
			}
			if err := atomicfile.WriteBytes(file, 0o644, m.data); err != nil {
				return err
			}
		}
	}
	return nil
}
