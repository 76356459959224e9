package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// listed bounds what a commit may list for each file that is allowed. A few trees that name each other list more files and folders than any disk holds,
// and folders without files count as little as they weigh.
const listed = 4

// maxListed bounds one line of a list: git itself takes paths of any length.
const maxListed = 64 << 10

// tree lists the files of a commit.
func (f *Fetcher) tree(ctx context.Context, bare, commit string) (files []entry, warnings []string, err error) {
	var links, modules []string
	entries, size := 0, 0
	read := func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxListed)
		lines.Split(splitNUL)
		for lines.Scan() {
			entries++
			size += len(lines.Bytes())
			if entries > listed*f.o.Limits.Files || size > maxOutput {
				return fmt.Errorf("it holds more files and folders than can be listed (%d files are allowed)", f.o.Limits.Files)
			}
			mode, e, err := listedEntry(lines.Text())
			if err != nil {
				return err
			}
			switch mode {
			case "100644", "100755", "100664":
				files = append(files, e)
			case "040000": // it counts
			case "120000":
				links = append(links, e.path)
			case "160000":
				modules = append(modules, e.path)
			default:
				return fmt.Errorf("%s has the mode %s, which is none", diag.Repr(e.path), diag.Clean(mode))
			}
		}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			return fmt.Errorf("it holds a path of more than %d KiB", maxListed>>10)
		}
		return lines.Err()
	}
	if _, err = f.run(ctx, command{dir: bare, args: []string{"ls-tree", "-r", "-t", "-z", "-l", "--full-tree", commit}, read: read, limit: localTime}); err != nil {
		return nil, nil, err
	}
	if len(links) > 0 {
		return nil, nil, fmt.Errorf("it holds symbolic links, which plugins may not have: %s", someOf(links))
	}
	if len(modules) > 0 {
		warnings = append(warnings, "submodules are not fetched: "+someOf(modules))
	}
	return files, warnings, nil
}

// splitNUL is a bufio.SplitFunc of what ends with a NUL.
func splitNUL(data []byte, end bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if end && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// listedEntry reads one line of git's list. Only files have a size.
func listedEntry(line string) (mode string, e entry, err error) {
	head, name, ok := strings.Cut(line, "\t")
	fields := strings.Fields(head)
	if !ok || len(fields) != 4 {
		return "", e, fmt.Errorf("git lists a file as %s", diag.Repr(line))
	}
	mode, e = fields[0], entry{path: name, sha: fields[2], exec: fields[0] == "100755"}
	if fields[1] == "blob" {
		if e.size, err = strconv.ParseInt(fields[3], 10, 64); err != nil {
			return "", e, fmt.Errorf("git lists a file as %s", diag.Repr(line))
		}
	}
	return mode, e, nil
}
