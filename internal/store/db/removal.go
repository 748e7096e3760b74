package db

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Deleted data must be gone from the files. SQLite overwrites deleted rows and freed pages with
// zeros (secure_delete). This file handles the three places where their bytes can remain: copies in
// pages whose rows were moved to another one, the write-ahead log, and the free end of the file.

// Overwrite has SQLite overwrite deleted data from now on.
func (w *Writer) Overwrite() error {
	if err := sqlitex.ExecuteTransient(w.Conn, "PRAGMA secure_delete=ON", nil); err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	return nil
}

// Free returns the number of unused pages of the file.
func (w *Writer) Free() (int, error) { return QueryInt(w.Conn, "PRAGMA freelist_count") }

// Pages returns the number of pages of the file.
func (w *Writer) Pages() (int, error) { return QueryInt(w.Conn, "PRAGMA page_count") }

// GiveBack moves so many pages from the end of the file into its gaps, and shortens it by as many
// with the next checkpoint.
func (w *Writer) GiveBack(pages int) error {
	if err := sqlitex.ExecuteTransient(w.Conn, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", pages), nil); err != nil {
		return fmt.Errorf("cannot give free space of the store back: %w", err)
	}
	return nil
}

// EmptyLog brings all of the write-ahead log into the file and truncates it, the truncation within
// rewrite. If somebody still reads from it, it stays, and busy is true.
func (w *Writer) EmptyLog(rewrite func(cut func() error) error) (busy bool, err error) {
	// This does most of the work while others may still look at the files.
	if err := sqlitex.ExecuteTransient(w.Conn, "PRAGMA wal_checkpoint(PASSIVE)", nil); err != nil {
		return false, fmt.Errorf("cannot empty the write-ahead log: %w", err)
	}
	err = rewrite(func() error {
		return sqlitex.ExecuteTransient(w.Conn, "PRAGMA wal_checkpoint(TRUNCATE)", &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			busy = stmt.ColumnInt(0) != 0
			return nil
		}})
	})
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot empty the write-ahead log: %w", err)
	}
	return busy, nil
}

// PagesOf returns the pages of a table and its indexes.
func (r *Reader) PagesOf(ctx context.Context, table string) (pages []int64, err error) {
	names, err := Rows(ctx, r, "the names of the store", `SELECT name FROM sqlite_schema WHERE tbl_name = ? AND rootpage > 0`, []any{table}, ScanText)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		more, err := Rows(ctx, r, "the pages of the store", `SELECT pageno FROM dbstat WHERE name = ? AND pagetype IN ('leaf', 'internal')`, []any{name}, ScanInt)
		if err != nil {
			return nil, err
		}
		pages = append(pages, more...)
	}
	return pages, nil
}

// Wipe overwrites with zeros the bytes of pages beside their rows, where SQLite leaves copies of
// rows that it has moved. A page that is used otherwise by now is wiped accordingly.
func (w *Writer) Wipe(pages []int64) (err error) {
	defer sqlitex.Save(w.Conn)(&err)
	for _, no := range pages {
		var page []byte
		err := sqlitex.Execute(w.Conn, `SELECT data FROM sqlite_dbpage WHERE pgno = ?`, &sqlitex.ExecOptions{Args: []any{no}, ResultFunc: func(stmt *sqlite.Stmt) error {
			page = ColumnBytes(stmt, 0)
			return nil
		}})
		if err == nil && wipeGap(page, no == 1) {
			err = sqlitex.Execute(w.Conn, `UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?`, &sqlitex.ExecOptions{Args: []any{page, no}})
		}
		if err != nil {
			return fmt.Errorf("cannot wipe page %d of the store: %w", no, err)
		}
	}
	return nil
}

// wipeGap overwrites the unused part of a tree's page, between the list of its cells and the first
// of them, and reports whether there was anything in it.
//
// Source: https://www.sqlite.org/fileformat2.html, section 1.6.
func wipeGap(page []byte, first bool) (found bool) {
	header := 0
	if first {
		header = 100
	}
	if len(page) < header+12 {
		return false
	}
	size := 8
	switch page[header] {
	case 2, 5:
		size = 12
	case 10, 13:
	default:
		return false
	}
	from := header + size + 2*int(binary.BigEndian.Uint16(page[header+3:]))
	to := int(binary.BigEndian.Uint16(page[header+5:]))
	if to == 0 {
		to = 1 << 16
	}
	if from > to || to > len(page) {
		return false
	}
	for i := range page[from:to] {
		found = found || page[from+i] != 0
	}
	clear(page[from:to])
	return found
}

// autoVacuum is SQLite's mode for a database whose pages can be moved, so that the file can be
// shortened.
const autoVacuum = 2

// Movable reports whether pages can be moved, so that the file can be shortened step by step.
func (w *Writer) Movable() (bool, error) {
	mode, err := QueryInt(w.Conn, "PRAGMA auto_vacuum")
	return mode == autoVacuum, err
}

// MakeMovable rewrites the whole database so that it is [Writer.Movable]. Its temporary files are
// in the same directory.
func (w *Writer) MakeMovable(ctx context.Context, path string) error {
	w.Conn.SetInterrupt(ctx.Done())
	defer w.Conn.SetInterrupt(nil)
	for _, statement := range []string{
		"PRAGMA temp_store=FILE", fmt.Sprintf("PRAGMA temp_store_directory='%s'", strings.ReplaceAll(filepath.Dir(path), "'", "''")),
		fmt.Sprintf("PRAGMA auto_vacuum=%d", autoVacuum), "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)",
		"PRAGMA temp_store_directory=''", "PRAGMA temp_store=MEMORY",
	} {
		if err := sqlitex.ExecuteTransient(w.Conn, statement, nil); err != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
	return nil
}
