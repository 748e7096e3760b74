package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/rowseal"
)

// Rebuild copies a database into a new file, and corrects the rows there by the log. Key is the key
// of its rows. It returns the differences before and after: a row that needs more than the records
// hold is left as it is, and one that somebody else has written stays without a seal.
func (r *Reader) Rebuild(ctx context.Context, path string, key []byte) (differed, left []fold.Difference, err error) {
	first, err := r.FirstSeq(ctx)
	if err != nil {
		return nil, nil, err
	}
	replay := fold.NewReplay()
	if err := r.EachLine(ctx, max(first, 1)-1, replay.Add); err != nil {
		return nil, nil, err
	}
	if replay.Silent() || !replay.Whole() {
		return nil, nil, errors.New("cannot make rows from the log: it does not say what they must be")
	}
	if differed, err = r.UnlikeTheLog(ctx, replay); err != nil {
		return nil, nil, err
	}
	if err := r.CopyTo(ctx, path); err != nil {
		return nil, nil, err
	}
	w, err := db.OpenWriter(path)
	if err != nil {
		return nil, nil, err
	}
	unsealed, err := mend(ctx, w, replay, differed, key)
	if err == nil {
		found := fold.NewFound()
		if err = foldrows.Open(w.Conn, replay.Time(), found); err == nil {
			left = append(replay.Compare(found, replay.Time()), unsealed...)
		}
	}
	return differed, left, errors.Join(err, w.Close())
}

func mend(ctx context.Context, w *db.Writer, replay *fold.Replay, differed []fold.Difference, key []byte) (unsealed []fold.Difference, err error) {
	version, newest, err := schema().Versions(w.Conn)
	if err != nil {
		return nil, err
	}
	if version != newest {
		return nil, fmt.Errorf("cannot make rows in a database of another version: start the daemon once, or use the version that wrote it")
	}
	k := rowseal.Key{Key: key, Sealed: true}
	seals, err := k.Settle(ctx, w, version, newest, func(func() error) error { return errors.New("the database is not sealed with the key") })
	if err == nil {
		err = w.Seal(seals)
	}
	if err != nil {
		return nil, err
	}
	err = w.Together(func() error {
		unsealed, err = foldrows.Mend(w, differed, replay.Set(), replay.Time())
		return err
	})
	return unsealed, err
}
