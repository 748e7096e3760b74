package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/rowseal"
)

// Rebuilt is the result of [Reader.Rebuild].
type Rebuilt struct {
	// Differed are the differences between the rows and the log before, and Left those after: a row
	// that needs more than the records hold is left as it is.
	Differed, Left []fold.Difference
	// Altered are the rows and records that somebody other than the daemon has written, whether the
	// log states them or not. They stay without a seal, and a daemon that needs one does not start.
	Altered []*AlteredError
}

// Rebuild copies a database into a new file, and corrects the rows there by the log. Key is the key
// of its rows. It refuses a database whose schema somebody has changed, with which no daemon starts.
func (r *Reader) Rebuild(ctx context.Context, path string, key []byte) (made Rebuilt, err error) {
	if err := r.CheckSchema(ctx); err != nil {
		return made, fmt.Errorf("cannot make rows in this database: %w; "+audit.PutBack, err)
	}
	first, err := r.FirstSeq(ctx)
	if err != nil {
		return made, err
	}
	replay := fold.NewReplay()
	if err := r.EachLine(ctx, max(first, 1)-1, replay.Add); err != nil {
		return made, err
	}
	if replay.Silent() || !replay.Whole() {
		return made, errors.New("cannot make rows from the log: it does not say what they must be")
	}
	if made.Differed, err = r.UnlikeTheLog(ctx, replay); err != nil {
		return made, err
	}
	if err := r.CopyTo(ctx, path); err != nil {
		return made, err
	}
	w, err := db.OpenWriter(path)
	if err != nil {
		return made, err
	}
	if err = errors.Join(mend(ctx, w, replay, made.Differed, key), w.Close()); err != nil {
		return made, err
	}
	rebuilt, err := OpenReader(ctx, path)
	if err != nil {
		return made, err
	}
	if made.Left, err = rebuilt.UnlikeTheLog(ctx, replay); err == nil {
		made.Altered, err = rebuilt.AlteredRows(ctx, key, true)
	}
	return made, errors.Join(err, rebuilt.Close())
}

func mend(ctx context.Context, w *db.Writer, replay *fold.Replay, differed []fold.Difference, key []byte) error {
	version, newest, err := schema().Versions(w.Conn)
	if err != nil {
		return err
	}
	if version != newest {
		return fmt.Errorf("cannot make rows in a database of another version: start the daemon once, or use the version that wrote it")
	}
	k := rowseal.Key{Key: key, Sealed: true}
	seals, err := k.Settle(ctx, w, version, newest, func(func() error) error { return errors.New("the database is not sealed with the key") })
	if err == nil {
		err = w.Seal(seals)
	}
	if err != nil {
		return err
	}
	return w.Together(func() error { return foldrows.Mend(w, differed, replay.Set(), replay.Time()) })
}
