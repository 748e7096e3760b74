package store

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// Speaker is somebody who spoke at a place with several readers. As a part it is added to the known
// ones there.
type Speaker struct {
	// Place is the place, and Account the channel's account that read it there, "" if unknown.
	Place, Account string
	// By is the tenant whose agent got the message.
	By string
	// Agent is set if the speaker is an agent, not a person.
	Agent bool
	ocip.Identity
}

// maxSpeakers bounds the stored speakers of one tenant. Beyond it the ones first heard are deleted,
// until they are heard again. Other tenants' rows are not affected.
const maxSpeakers = 65536

const aSpeaker = "who spoke at a place"

func (s Speaker) prepare() (int, error) {
	return bounded(aSpeaker, s.Place, s.Account, s.By, s.InstanceID, s.UserID, s.OrgUnit, s.TenantID)
}

func (s Speaker) put(tx *transaction) error {
	agent := int64(0)
	if s.Agent {
		agent = 1
	}
	first, last := shareOf(s.By)
	row := []db.Value{
		db.Text(s.Place), db.Text(s.By), db.Text(s.Account), db.Int(agent), db.Text(s.InstanceID), db.Text(s.UserID), db.Text(s.OrgUnit), db.Text(s.TenantID),
	}
	there, err := tx.Scalar(aSpeaker, `SELECT count(*) FROM speakers WHERE place = ? AND heard_by = ? AND account = ? AND agent = ? AND instance_id = ? AND user_id = ? AND org_unit = ? AND tenant_id = ?`, row...)
	if err != nil || there > 0 {
		return err
	}
	no, err := tx.Scalar(aSpeaker, `SELECT coalesce(max(no), ?) + 1 FROM main.speakers WHERE no BETWEEN ? AND ?`, first, first, last)
	if err == nil {
		err = tx.Insert(aSpeaker, "speakers", slices.Insert(row, 0, db.Int(no))...)
	}
	if err != nil {
		return err
	}
	return tx.Exec(aSpeaker, `DELETE FROM main.speakers WHERE no BETWEEN ? AND (SELECT max(no) FROM speakers WHERE no BETWEEN ? AND ?) - ?`,
		first, first, last, db.Int(maxSpeakers))
}

// Speakers returns the speakers at a place that a tenant's agents heard.
func (s *Known) Speakers(ctx context.Context, tenant, place string) ([]Speaker, error) {
	return db.Rows(ctx, s.db, aSpeaker, selectSpeakers+` AND heard_by = ? ORDER BY no`, []any{place, tenant}, scanSpeaker)
}

// SpeakersToAll returns the speakers at a place that the agents of any tenant heard.
func (s *Known) SpeakersToAll(ctx context.Context, place string) ([]Speaker, error) {
	return db.Rows(ctx, s.db, aSpeaker, selectSpeakers+` ORDER BY no`, []any{place}, scanSpeaker)
}

const selectSpeakers = `SELECT place, account, heard_by, agent, instance_id, user_id, org_unit, tenant_id FROM speakers WHERE place = ?`

func scanSpeaker(stmt *sqlite.Stmt) (Speaker, error) {
	return Speaker{
		Place: stmt.ColumnText(0), Account: stmt.ColumnText(1), By: stmt.ColumnText(2), Agent: stmt.ColumnInt64(3) != 0,
		Identity: ocip.Identity{InstanceID: stmt.ColumnText(4), UserID: stmt.ColumnText(5), OrgUnit: stmt.ColumnText(6), TenantID: stmt.ColumnText(7)},
	}, nil
}

// Unheard is a place whose known speakers are deleted. It is a part.
type Unheard string

func (Unheard) prepare() (int, error) { return 0, nil }

func (u Unheard) put(tx *transaction) error {
	return tx.Exec("that a place is forgotten", `DELETE FROM main.speakers WHERE place = ?`, db.Text(string(u)))
}
