package db

import (
	"errors"
	"fmt"
	"strings"
)

// Seal has the writer seal rows, and check the rows that it reads, from now on.
func (w *Writer) Seal(s *Seals) (err error) {
	w.sealer, w.seals = s.sealer(), s
	w.checker, err = s.install(w.Conn)
	return err
}

// Seals returns the seals of [Writer.Seal], nil before.
func (w *Writer) Seals() *Seals { return w.seals }

// Sealed reports whether the writer seals the rows of a table.
func (w *Writer) Sealed(table string) bool { return w.seals != nil && w.seals.tables[table] != nil }

// sealed returns a sealed table, for the values of one of its rows.
func (w *Writer) sealed(table string, values []Value) (*sealedTable, error) {
	if !w.Sealed(table) {
		return nil, fmt.Errorf("the table %s has no seals", table)
	}
	t := w.seals.tables[table]
	if len(values) != len(t.columns) {
		return nil, fmt.Errorf("a row of %s has %d columns: %d are given", table, len(t.columns), len(values))
	}
	return t, nil
}

// Put writes a row in place of the one with its primary key. The values are those of all columns,
// in the table's order.
func (w *Writer) Put(what, table string, values ...Value) error {
	t, err := w.sealed(table, values)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return w.exec(what, t.put, values, w.sealer.of(t, values))
}

// Insert writes a new row. It returns an error if a unique column has the value already. The values
// are as for [Writer.Put].
func (w *Writer) Insert(what, table string, values ...Value) error {
	t, err := w.sealed(table, values)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return w.exec(what, t.insert, values, w.sealer.of(t, values))
}

// PutOver writes one column of the row with a primary key, if all other sealed columns are as
// given, and reports whether there was such a row. It does not touch indexes without that column.
// The values are as for [Writer.Put].
func (w *Writer) PutOver(what, table, column string, values ...Value) (found bool, err error) {
	t, err := w.sealed(table, values)
	if err != nil {
		return false, fmt.Errorf("cannot write %s: %w", what, err)
	}
	err = w.exec(what, t.putOver(column), values, w.sealer.of(t, values))
	return err == nil && w.Changes() > 0, err
}

// putOver returns the statement for [Writer.PutOver], with the parameters of [Writer.Put].
func (t *sealedTable) putOver(column string) string {
	if query, ok := t.over[column]; ok {
		return query
	}
	set, where := "", ""
	for i := range t.columns {
		c := &t.columns[i]
		is := strings.Replace(c.placeholder(), "?", fmt.Sprintf("?%d", i+1), 1)
		switch {
		case c.name == column:
			set = c.name + ` = ` + is
		case !c.counter:
			where += ` AND ` + c.name + ` IS ` + is
		}
	}
	query := fmt.Sprintf(`UPDATE main.%s SET %s, seal = ?%d WHERE true%s`, t.name, set, len(t.columns)+1, where)
	t.over[column] = query
	return query
}

// Amend has a function change the values of each row that a condition selects, in the table's
// order, and writes the rows again. The primary key must stay. It returns the number of rows. An
// altered row is an [*AlteredError].
func (w *Writer) Amend(what, table string, change func(values []Value), where string, args ...Value) (rows int, err error) {
	if !w.Sealed(table) {
		return 0, fmt.Errorf("cannot write %s: the table %s has no seals", what, table)
	}
	t := w.seals.tables[table]
	found, err := w.read(t, `SELECT `+t.names()+` FROM `+t.name+` WHERE `+where, args)
	if err = w.checker.take(err); err != nil {
		return 0, fmt.Errorf("cannot write %s: %w", what, err)
	}
	for _, values := range found {
		change(values)
		if err := w.Put(what, table, values...); err != nil {
			return 0, err
		}
	}
	return len(found), nil
}

// read returns all columns of the rows that a query selects.
func (w *Writer) read(t *sealedTable, query string, args []Value) (found [][]Value, err error) {
	stmt, err := w.stmt(query, args)
	if err != nil {
		return nil, err
	}
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return found, errors.Join(err, stmt.Reset())
		}
		values := make([]Value, len(t.columns), len(t.columns)+1)
		for place := range t.columns {
			switch {
			case stmt.ColumnIsNull(place):
				values[place] = Null()
			case t.columns[place].kind == kindText:
				values[place] = Text(stmt.ColumnText(place))
			case t.columns[place].kind == kindBlob:
				values[place] = Bytes(ColumnBytes(stmt, place))
			default:
				values[place] = Int(stmt.ColumnInt64(place))
			}
		}
		found = append(found, values)
	}
}
