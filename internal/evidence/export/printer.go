package export

import (
	"bufio"
	"fmt"
	"slices"
)

// TypeJSONL prints records in their sealed form.
const TypeJSONL = "jsonl"

// Formats lists the formats for printing records.
func Formats() []string { return []string{TypeOCSF, TypeOTLP, TypeSyslog, TypeJSONL} }

// Limits of records, and approximately of their bytes, in one line of OTLP.
const (
	printedPage  = 512
	printedBytes = 1 << 20
)

// Printer prints records in a format.
type Printer struct {
	Format  string
	Mapping Mapping
	W       *bufio.Writer
	// Shown, if set, returns the text to write in place of a line.
	Shown func(line []byte) []byte

	// page holds the records of a line of OTLP.
	page  []Record
	bytes int
}

// Add prints a record. The caller may reuse the line afterwards.
func (x *Printer) Add(line []byte) error {
	r := Read(line)
	switch x.Format {
	case TypeOCSF:
		return x.print(x.Mapping.OCSF(&r))
	case TypeSyslog:
		for _, message := range x.Mapping.Syslog(&r, DefaultMaxBytes) {
			if err := x.print(message); err != nil {
				return err
			}
		}
		return nil
	case TypeOTLP:
		r.Line = slices.Clone(line)
		x.page, x.bytes = append(x.page, r), x.bytes+len(line)
		if len(x.page) < printedPage && x.bytes < printedBytes {
			return nil
		}
		return x.turn()
	}
	return x.print(line)
}

func (x *Printer) print(line []byte) error {
	if x.Shown != nil {
		line = x.Shown(line)
	}
	if _, err := x.W.Write(line); err != nil {
		return err
	}
	return x.W.WriteByte('\n')
}

// turn prints a line of OTLP.
func (x *Printer) turn() error {
	text, err := x.Mapping.OTLPJSON(x.page)
	if err != nil {
		return fmt.Errorf("cannot print as OTLP: %w", err)
	}
	x.page, x.bytes = x.page[:0], 0
	return x.print(text)
}

// Flush writes the buffered output.
func (x *Printer) Flush() error {
	if len(x.page) > 0 {
		if err := x.turn(); err != nil {
			return err
		}
	}
	return x.W.Flush()
}
