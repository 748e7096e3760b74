package db

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var (
	// ErrForeign means that a file belongs to another program.
	ErrForeign = errors.New("cannot use the store: the file is another program's")
	// ErrEmpty means that a file is an empty database.
	ErrEmpty = errors.New("cannot use the store: the file is an empty database")
)

// Schema defines the tables of a database, step by step.
type Schema struct {
	// Application marks the file, so that another program's database is never mistaken for it. Copy
	// marks a copy of it.
	Application, Copy int
	// Steps are SQL scripts in the order of their names. A database's version is the number of
	// steps that it has had.
	Steps fs.FS
	// Result, if set, is the schema that all steps make, as [Schema.Make] returns it, and Rows the SQL
	// of the rows that they write. With both, an empty database is made without the steps.
	Result []byte
	Rows   string

	mu sync.Mutex
	// made caches the schema of each version, once a database was checked at it.
	made map[int]map[object]string
}

func (s *Schema) steps() ([]string, error) {
	steps, err := fs.Glob(s.Steps, "*/*.sql")
	if err != nil {
		return nil, fmt.Errorf("cannot list migrations: %w", err)
	}
	return steps, nil
}

// Versions returns the schema version of an open database, zero for an empty one, and that of the
// schema. It refuses a database of another program or of a newer daemon.
func (s *Schema) Versions(conn *sqlite.Conn) (version, newest int, err error) {
	version, err = QueryInt(conn, "PRAGMA user_version")
	if err != nil {
		return 0, 0, err
	}
	owner, err := QueryInt(conn, "PRAGMA application_id")
	if err != nil {
		return 0, 0, err
	}
	tables, err := QueryInt(conn, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, 0, err
	}
	steps, err := s.steps()
	switch newest = len(steps); {
	case err != nil:
		return 0, 0, err
	case owner == 0 && version == 0 && tables == 0:
		return 0, newest, nil
	case owner != s.Application && owner != s.Copy:
		return 0, 0, ErrForeign
	case version > newest:
		return 0, 0, fmt.Errorf("cannot use the store: its schema version %d is newer than this daemon's %d; use the daemon that wrote it", version, newest)
	}
	return version, newest, nil
}

// Migrate brings a database to the newest version, each step in its own transaction. It refuses a
// database of a newer daemon, or of another program, without changing it.
func (s *Schema) Migrate(w *Writer) error {
	version, _, err := s.Versions(w.Conn)
	if err != nil {
		return err
	}
	steps, err := s.steps()
	if err != nil {
		return err
	}
	if version == 0 && s.Result != nil {
		return s.begin(w.Conn, len(steps))
	}
	for i := version; i < len(steps); i++ {
		if err := s.apply(w.Conn, steps, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *Schema) apply(conn *sqlite.Conn, steps []string, i int) error {
	script, err := fs.ReadFile(s.Steps, steps[i])
	if err != nil {
		return fmt.Errorf("cannot read migration %s: %w", steps[i], err)
	}
	if err := s.run(conn, string(script), i+1); err != nil {
		return fmt.Errorf("cannot apply migration %s: %w", steps[i], err)
	}
	return nil
}

// begin gives an empty database the schema and the rows of all steps.
func (s *Schema) begin(conn *sqlite.Conn, newest int) error {
	list, err := readMade(s.Result)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, kind := range []string{"table", "index", "view", "trigger"} {
		for _, one := range list {
			// SQLite makes the indexes of keys by itself, and gives them no SQL.
			if sql := strings.TrimSpace(strings.Join(one.SQL, "\n")); one.Kind == kind && sql != "" {
				script.WriteString(sql + ";\n")
			}
		}
	}
	if err := s.run(conn, script.String()+s.Rows, newest); err != nil {
		return fmt.Errorf("cannot make the tables of the store: %w", err)
	}
	return nil
}

// run runs a script that brings a database to a version. A copy stays marked as one.
func (s *Schema) run(conn *sqlite.Conn, script string, version int) error {
	owner, err := QueryInt(conn, "PRAGMA application_id")
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;", script, cmp.Or(owner, s.Application), version)
	return sqlitex.ExecuteScript(conn, text, nil)
}

// SchemaError means that a database has other tables, indexes, triggers or views than the
// migrations to its version make.
type SchemaError struct {
	// Kind is "table", "index", "trigger" or "view", and Name which one it is.
	Kind, Name string
	// Problem describes the difference.
	Problem string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the %s %.80q of the database %s", e.Kind, e.Name, e.Problem)
}

// Check compares the schema of an open database with the one that the migrations to its version
// make. It returns a [*SchemaError] if they differ: a foreign trigger
// would run in the daemon, and a renamed column would be read as another one.
func (s *Schema) Check(conn *sqlite.Conn) error {
	version, _, err := s.Versions(conn)
	if err != nil || version == 0 {
		return err
	}
	want, err := s.model(version)
	if err != nil {
		return err
	}
	have, err := schemaOf(conn)
	if err != nil {
		return err
	}
	for _, one := range slices.SortedFunc(maps.Keys(have), object.compare) {
		switch made, ok := want[one]; {
		case !ok:
			return &SchemaError{Kind: one.kind, Name: one.name, Problem: "was not made by the daemon"}
		case made != have[one]:
			return &SchemaError{Kind: one.kind, Name: one.name, Problem: "is not as the daemon made it"}
		}
	}
	for _, one := range slices.SortedFunc(maps.Keys(want), object.compare) {
		if _, ok := have[one]; !ok {
			return &SchemaError{Kind: one.kind, Name: one.name, Problem: "is missing"}
		}
	}
	return nil
}

// model returns the schema of a version. It is made once.
func (s *Schema) model(version int) (_ map[object]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := s.made[version]; ok {
		return made, nil
	}
	steps, err := s.steps()
	if err != nil {
		return nil, err
	}
	var made map[object]string
	if version == len(steps) && s.Result != nil {
		made, err = readSchema(s.Result)
	} else {
		made, err = s.take(steps[:version])
	}
	if err != nil {
		return nil, err
	}
	if s.made == nil {
		s.made = make(map[int]map[object]string)
	}
	s.made[version] = made
	return made, nil
}

// take returns the schema that steps make in a database in memory.
func (s *Schema) take(steps []string) (_ map[object]string, err error) {
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenMemory)
	if err != nil {
		return nil, fmt.Errorf("cannot check the schema of the store: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for i := range steps {
		if err := s.apply(conn, steps, i); err != nil {
			return nil, err
		}
	}
	return schemaOf(conn)
}

// made is an object of a schema as [Schema.Make] writes it.
type made struct {
	Kind, Name, Table string
	SQL               []string
}

// Make takes all steps in a database in memory, and returns what they make, as JSON.
func (s *Schema) Make() ([]byte, error) {
	steps, err := s.steps()
	if err != nil {
		return nil, err
	}
	found, err := s.take(steps)
	if err != nil {
		return nil, err
	}
	list := make([]made, 0, len(found))
	for _, one := range slices.SortedFunc(maps.Keys(found), object.compare) {
		list = append(list, made{one.kind, one.name, one.table, strings.Split(found[one], "\n")})
	}
	return json.Marshal(list, jsontext.WithIndent("\t"))
}

func readMade(text []byte) (list []made, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("cannot read the schema of the store: %w", err)
	}
	return list, nil
}

func readSchema(text []byte) (map[object]string, error) {
	list, err := readMade(text)
	if err != nil {
		return nil, err
	}
	found := make(map[object]string, len(list))
	for _, one := range list {
		found[object{one.Kind, one.Name, one.Table}] = strings.Join(one.SQL, "\n")
	}
	return found, nil
}

// object names an object of a schema.
type object struct{ kind, name, table string }

func (o object) compare(other object) int {
	return cmp.Or(cmp.Compare(o.kind, other.kind), cmp.Compare(o.name, other.name), cmp.Compare(o.table, other.table))
}

// schemaOf returns the SQL of all objects in the schema of a database. Automatic ones, such as the
// index of a primary key, have none.
func schemaOf(conn *sqlite.Conn) (map[object]string, error) {
	found := make(map[object]string)
	err := sqlitex.ExecuteTransient(conn, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		one := object{stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2)}
		found[one] += stmt.ColumnText(3) + "\n"
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of the store: %w", err)
	}
	return found, nil
}

// refuseForeign checks a file before it is opened for writing, so that one of another program or of
// a newer daemon is not changed at all.
func (s *Schema) refuseForeign(path string) error {
	conn, _, err := openBeside(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrEmpty):
		return nil
	case err != nil:
		return err
	}
	_, _, err = s.Versions(conn)
	return errors.Join(err, conn.Close())
}

// blank reports whether a database is empty and has no write-ahead log, for example because the log
// was lost before any of it was in the file. With a log, a first start may have ended while it made
// the tables.
func (s *Schema) blank(path string) (bool, error) {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return false, nil
	}
	conn, _, err := openBeside(path)
	if err != nil {
		return false, err
	}
	version, _, err := s.Versions(conn)
	return version == 0, errors.Join(err, conn.Close())
}
