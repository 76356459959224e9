package task

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

const (
	// maxSeeds bounds the file of seeds, and maxRows how many runs it may ask for.
	maxSeeds = 64 << 20
	maxRows  = 100_000
	// rowName is the column that names rows, where there is one.
	rowName = "id"
)

type batchOptions struct {
	which        verb.Which
	seeds        string
	placeholders bool
	*runview.Flags
}

func newRunBatch(p *verb.Program) *cobra.Command {
	var o batchOptions
	cmd := &cobra.Command{
		Use:   "run-batch ID --seeds CSV",
		Short: "Run a stored task once for each row of a table",
		Long: `Runs a stored task once for each row of a CSV file, whose first line names the columns: a column's value stands for <column> in every text of the task's steps.
Rows are called by their column "id", or by their number. "-" reads standard input.

A placeholder that no column fills is refused before anything runs, and a column that no step asks for is told of.

` + exits,
		Example:           "  agent-env task run-batch mail/smoke --seeds names.csv --concurrency 8\n  agent-env task run-batch mail/smoke --seeds names.csv --dry-run",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := o.which.ID(cmd, args)
			if err != nil {
				return err
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			if o.seeds == "" {
				return verb.Usagef("agent-env task run-batch needs --seeds CSV, the table with a row for each run")
			}
			rows, err := readSeeds(p, o.seeds)
			if err != nil {
				return err
			}
			return runStored(cmd.Context(), p, o.Flags, bundlerun.StoredRequest{
				Tasks: []taskstore.TaskRef{{ID: id, Version: *o.which.Version}}, Seeds: rows, AllowPlaceholders: o.placeholders,
			})
		},
	}
	o.which = p.WhichFlags(cmd, "task", verb.Stored(store.Task))
	cmd.Flags().StringVar(&o.seeds, "seeds", "", "the `CSV` file with a row for each run")
	cmd.Flags().BoolVar(&o.placeholders, "allow-placeholders", false, "let texts hold <words> that no column fills")
	o.Flags = runview.AddFlags(cmd)
	return cmd
}

// readSeeds reads the table of seeds. What is wrong with it is a diag.Refusal with all of it.
func readSeeds(p *verb.Program, path string) ([]bundlerun.Seed, error) {
	in, name := p.Streams.In, "standard input"
	if path != "-" {
		name = path
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read the seeds: %w", err)
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, maxSeeds+1))
	if err != nil {
		return nil, fmt.Errorf("read the seeds: %w", err)
	}
	rows, l := parseSeeds(name, src)
	return rows, l.Err()
}

// parseSeeds reads CSV: RFC 4180, with a byte order mark if there is one.
func parseSeeds(name string, src []byte) ([]bundlerun.Seed, diag.List) {
	var l diag.List
	fault := func(line int, summary, fix string) {
		l.Add(diag.Problem{Pos: diag.Pos{File: name, Line: line}, Code: "seeds", Summary: summary, Fix: fix, Prefixed: true})
	}
	if len(src) > maxSeeds {
		fault(0, fmt.Sprintf("has more than %d MiB", maxSeeds>>20), "split it")
		return nil, l
	}
	if i := notText(src); i >= 0 {
		fault(1+bytes.Count(src[:i], []byte("\n")), fmt.Sprintf("not UTF-8: byte 0x%02x", src[i]), "save the file as UTF-8")
		return nil, l
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(src, []byte("\ufeff"))))
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		fault(0, "is empty", "write the names of the columns in its first line")
		return nil, l
	}
	if err != nil {
		fault(csvFault(err))
		return nil, l
	}
	for i, key := range head {
		head[i] = strings.TrimSpace(key)
		switch {
		case head[i] == "":
			fault(1, fmt.Sprintf("column %d has no name", i+1), "name it, or take it away")
		case strings.ContainsAny(head[i], "<>"):
			fault(1, "the column "+diag.Repr(head[i])+" has < or > in its name", "write the name without them: <name> stands for it in the task")
		case slices.Contains(head[:i], head[i]):
			fault(1, "two columns are called "+diag.Repr(head[i]), "rename one")
		}
	}
	var rows []bundlerun.Seed
	lines := map[string]int{}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fault(csvFault(err))
			break
		}
		line, _ := r.FieldPos(0)
		if len(record) != len(head) {
			fault(line, fmt.Sprintf("has %d values for %d columns", len(record), len(head)), "give every column a value; quote those that hold a comma")
			continue
		}
		if len(rows) == maxRows {
			fault(line, fmt.Sprintf("is more than %d rows", maxRows), "split the file")
			break
		}
		row := bundlerun.Seed{Name: strconv.Itoa(len(rows) + 1), Values: make(map[string]string, len(head))}
		for i, v := range record {
			row.Values[head[i]] = v
			if head[i] == rowName && v != "" {
				row.Name, row.Key = v, rowName
			}
		}
		if before, twice := lines[row.Name]; twice {
			fault(line, fmt.Sprintf("the row is called %s, as the one in line %d is", diag.Repr(row.Name), before), "give each row an id of its own")
		}
		lines[row.Name] = line
		rows = append(rows, row)
	}
	if len(rows) == 0 && !l.HasErrors() {
		fault(0, "has no row below its first line", "write a line for each run")
	}
	return rows, l
}

// notText is the place of the first byte that no text in UTF-8 has, -1 when there is none. Zero bytes are how UTF-16 without a mark shows.
func notText(src []byte) int {
	for i := 0; i < len(src); {
		c, n := utf8.DecodeRune(src[i:])
		if c == 0 || c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// csvFault is where and why a line is no CSV.
func csvFault(err error) (line int, summary, fix string) {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return e.Line, "is no CSV: " + e.Err.Error(), `write a quote within quotes twice ("")`
	}
	return 0, "can't be read: " + err.Error(), ""
}
