package term

import (
	"io"
	"strings"
)

// Table is aligned columns. Cells are cleaned; nothing is ever cut, so that ids can be copied.
type Table struct {
	head  []string
	right []bool
	rows  [][]string
}

// NewTable makes a table; a heading that begins with ">" has its column aligned to the right.
func NewTable(headings ...string) *Table {
	t := &Table{}
	for _, h := range headings {
		name, right := strings.CutPrefix(h, ">")
		t.head = append(t.head, name)
		t.right = append(t.right, right)
	}
	return t
}

// Row adds a row. Missing cells are empty, cells beyond the headings are left out.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.head))
	for i := range min(len(cells), len(row)) {
		row[i] = Clean(cells[i])
	}
	t.rows = append(t.rows, row)
}

// Len counts rows.
func (t *Table) Len() int { return len(t.rows) }

// Print writes the table to Out, the headings bold where there is colour.
func (t *Table) Print(s *Streams) error {
	return t.write(s.Out, s.OutColors().Bold)
}

// Text writes the table without colour.
func (t *Table) Text(w io.Writer) error {
	return t.write(w, func(head string) string { return head })
}

func (t *Table) write(w io.Writer, head func(string) string) error {
	wide := make([]int, len(t.head))
	for i, h := range t.head {
		wide[i] = width(h)
		for _, row := range t.rows {
			wide[i] = max(wide[i], width(row[i]))
		}
	}
	var b strings.Builder
	t.line(&b, wide, t.head, head)
	for _, row := range t.rows {
		t.line(&b, wide, row, func(cell string) string { return cell })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) line(b *strings.Builder, wide []int, cells []string, paint func(string) string) {
	var line strings.Builder
	for i, cell := range cells {
		if i > 0 {
			line.WriteString("  ")
		}
		pad := strings.Repeat(" ", wide[i]-width(cell))
		if t.right[i] {
			line.WriteString(pad + paint(cell))
		} else {
			line.WriteString(paint(cell) + pad)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}
