package doctor

import (
	"errors"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
)

const rowsAdvice = "ocipd audit verify --database names them; keep a copy of the database for whoever looks into it, and put a backup back: ocipd restore DIR, or make the rows anew from the log: ocipd audit rebuild-state FILE"

// rows checks the seals of the rows beside the log. A running daemon has checked them
// itself, and recorded its findings.
func (d *Examiner) rows() []Diagnosis {
	p := &d.places
	if !cli.Exists(p.database) {
		return []Diagnosis{passed("no row yet")}
	}
	r, err := store.OpenReader(d.ctx, p.database)
	if errors.Is(err, store.ErrRunning) {
		return d.alteredOnRecord()
	}
	if err != nil {
		return []Diagnosis{failed("%v", err).advise(verifyAdvice)}
	}
	defer r.Close()
	key, err := keyring.ReadRows(p.keys)
	if err != nil {
		return []Diagnosis{warned("not checked: %v", err).advise("put the key of rows back from a backup; a database of an earlier version gets one at the next start")}
	}
	var altered []*store.AlteredError
	if err = r.CheckSchema(d.ctx); err == nil {
		altered, err = r.AlteredRows(d.ctx, key.Key(), false)
	}
	fault, isFault := errors.AsType[*audit.Fault](err)
	switch {
	case isFault:
		return []Diagnosis{failed("%s", fault.Problem).advise(rowsAdvice)}
	case err != nil:
		return []Diagnosis{failed("cannot check the rows of the database: %v", err).advise("put the key of rows back from a backup (%s), or go on with the rows as they are: %s", p.keys, key.HowToAccept())}
	case len(altered) > 0:
		return []Diagnosis{failed("%s of the database changed by somebody else than the daemon", term.Count(len(altered), "row")).advise(rowsAdvice)}
	}
	return []Diagnosis{passed("all as the daemon wrote them")}
}

// alteredOnRecord finds the altered rows that the running daemon has recorded.
func (d *Examiner) alteredOnRecord() []Diagnosis {
	r, err := d.openLog()
	if err != nil {
		return []Diagnosis{failed("%v", err)}
	}
	defer r.Close()
	found, err := r.alteredSinceTheStart()
	switch {
	case err != nil:
		return []Diagnosis{failed("cannot read the log: %v", err).advise(verifyAdvice)}
	case found > 0:
		return []Diagnosis{failed("%s of the database changed by somebody else than the daemon: altered_row is on record", term.Count(found, "row")).advise(rowsAdvice)}
	}
	return []Diagnosis{passed("the daemon has found none that somebody else has changed")}
}

// alteredSinceTheStart counts the altered rows on record since the daemon's start.
func (l *examinedLog) alteredSinceTheStart() (found int, err error) {
	const page = 100
	for before := uint64(0); ; {
		lines, next, err := l.Query(l.ctx, audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}, 0, before, page)
		if err != nil {
			return 0, err
		}
		for _, line := range lines {
			e, err := audit.Parse(line)
			switch {
			case err != nil:
				return 0, err
			case e.Event == "altered_row":
				found++
			case e.Event == audit.EventStarted:
				return found, nil
			}
		}
		if before = next; next == 0 {
			return found, nil
		}
	}
}
