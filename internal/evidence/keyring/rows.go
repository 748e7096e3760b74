package keyring

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/openclawos/ocipd/internal/store/rowseal"
)

// rowFile holds the key that seals the rows of the database.
const rowFile = "rows.json"

// Rows is the key that seals the rows of the database: see internal/store/db. It is a key of its
// own, since a tenant's digest key can be destroyed while the rows stay.
type Rows struct {
	dir    string
	stored storedRows
}

// storedRows is the file. An operator writes a file that only accepts the rows.
type storedRows struct {
	Key    []byte    `json:"key,omitempty"`
	MadeAt time.Time `json:"madeAt,omitzero"`
	// Sealed is set if rows were sealed with the key.
	Sealed bool `json:"sealed,omitzero"`
	// Accept is set if the operator accepts the rows as they are.
	Accept bool `json:"accept,omitzero"`
}

// OpenRows opens the key of a directory, and makes one if there is none.
func OpenRows(dir string, random io.Reader, now func() time.Time) (*Rows, error) {
	r := &Rows{dir: dir}
	if err := prepare(dir, rowFile); err != nil {
		return nil, err
	}
	if err := r.read(); err != nil || len(r.stored.Key) > 0 {
		return r, err
	}
	r.stored.Key, r.stored.MadeAt = make([]byte, sha256.Size), now().UTC()
	if _, err := io.ReadFull(random, r.stored.Key); err != nil {
		return nil, fmt.Errorf("cannot make the key of rows: %w", err)
	}
	return r, r.write()
}

// ReadRows reads the key of a directory, and makes none. Without a key, the error is
// [fs.ErrNotExist].
func ReadRows(dir string) (*Rows, error) {
	r := &Rows{dir: dir}
	err := r.read()
	if err == nil && len(r.stored.Key) == 0 {
		err = fmt.Errorf("there is no key of rows: %w", fs.ErrNotExist)
	}
	return r, err
}

// read reads the file, if there is one.
func (r *Rows) read() error {
	text, err := read(r.dir, rowFile, secretMode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.stored, json.RejectUnknownMembers(true)); err != nil || len(r.stored.Key) != sha256.Size && (len(r.stored.Key) > 0 || !r.stored.Accept) {
		// The error may contain a part of the key.
		return fmt.Errorf("cannot use the key file %s: it holds no key of rows, as JSON; put it back from a backup, or go on with the rows as they are: %s", r.file(), r.HowToAccept())
	}
	return nil
}

func (r *Rows) file() string { return filepath.Join(r.dir, rowFile) }

func (r *Rows) write() error {
	text, err := json.Marshal(&r.stored, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("cannot encode the key of rows: %w", err)
	}
	return write(r.dir, rowFile, secretMode, append(text, '\n'))
}

// Key returns the key, of 32 bytes.
func (r *Rows) Key() []byte { return r.stored.Key }

// Sealed reports whether rows were sealed with the key.
func (r *Rows) Sealed() bool { return r.stored.Sealed }

// Accepted reports whether the operator accepts the rows of the database as they are.
func (r *Rows) Accepted() bool { return r.stored.Accept }

// Done notes that all rows are sealed with the key.
func (r *Rows) Done() error {
	r.stored.Sealed, r.stored.Accept = true, false
	return r.write()
}

// HowToAccept returns the command with which an operator accepts the rows of the database as they
// are. They are then sealed with a new key.
func (r *Rows) HowToAccept() string {
	return "(umask 077; echo '{\"accept\":true}' > " + shellQuote(r.file()) + ")"
}

// LedgerKey returns the key that seals the files of the runner's ledger: it is made of that of the
// rows in a directory, and does not tell it.
func LedgerKey(dir string) ([]byte, error) {
	rows, err := ReadRows(dir)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, rows.Key(), "ocipd runner ledger", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("cannot derive the key of the runner's ledger: %w", err)
	}
	return key, nil
}

// RowKey returns a function that opens the key of rows in a directory, as [OpenRows] does.
func RowKey(dir string, random io.Reader, now func() time.Time) func() (*rowseal.Key, error) {
	return func() (*rowseal.Key, error) {
		rows, err := OpenRows(dir, random, now)
		if err != nil {
			return nil, err
		}
		return &rowseal.Key{Key: rows.Key(), Sealed: rows.Sealed(), Accept: rows.Accepted(), HowToAccept: rows.HowToAccept(), Done: rows.Done}, nil
	}
}
