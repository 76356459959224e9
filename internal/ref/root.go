package ref

import (
	"errors"
	"fmt"
	"strings"
)

// RootOf is the id root of a bundle folder: "@local/~/<path below home>" or "@local/<absolute path>". Both paths are canonical: absolute, with
// links resolved and spelled as on disk; home is empty where there is none. Every segment of the path must be valid in an id.
func RootOf(dir, home string) (string, error) {
	if !strings.HasPrefix(dir, "/") {
		return "", fmt.Errorf("%s is not an absolute path", quote(dir))
	}
	dir = strings.TrimRight(dir, "/")
	if dir == "" {
		return "", errors.New("the root of the file system can't be a bundle; put the bundle in a folder")
	}
	home = strings.TrimRight(home, "/")
	rel, below := "", false
	if strings.HasPrefix(home, "/") {
		rel, below = strings.CutPrefix(dir, home+"/")
	}
	if !below {
		rel = dir[1:]
		if rel == "~" || strings.HasPrefix(rel, "~/") {
			return "", errors.New("ids of a folder named ~ at the root of the file system would look like ids below a home; move the bundle")
		}
	} else {
		rel = "~/" + rel
	}
	id := LocalPrefix + NFC(rel)
	if err := CheckAuthored(id); err != nil {
		return "", fmt.Errorf("move or rename it: %w", err)
	}
	return id, nil
}

// InstalledRoot is the id root of a bundle that an installed distribution carries, wherever it lies.
func InstalledRoot(dist, bundle string) string { return LocalPrefix + dist + "/" + NFC(bundle) }
