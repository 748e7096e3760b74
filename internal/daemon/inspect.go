package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
)

// inspector answers commands that read the database.
type inspector struct {
	store    *store.Store
	database string
	log      *zap.Logger
}

// inspect answers commands that need to read the database, because no other process
// can while the daemon runs.
func (i *inspector) inspect(ctx context.Context, p *api.AuditInspectParams) (found api.AuditInspection, err error) {
	fail := func(err error) (api.AuditInspection, error) {
		if ctx.Err() != nil {
			return api.AuditInspection{}, ctx.Err()
		}
		if _, damaged := errors.AsType[*audit.Fault](err); damaged {
			return api.AuditInspection{}, err
		}
		return api.AuditInspection{}, api.Errorf(api.InternalError, "%v", err)
	}
	if found.Database, err = filepath.Abs(i.database); err != nil {
		return fail(err)
	}
	log := i.store.Evidence()
	if found.Last, err = log.LastSeq(ctx); err != nil {
		return fail(err)
	}
	newest, err := log.Checkpoint(ctx)
	if err != nil {
		return fail(err)
	}
	found.CheckpointSeq, found.Checkpoint = newest.Seq, newest.Note
	if found.Key, err = log.PublicKey(ctx); err != nil {
		return fail(err)
	}
	stone, err := log.Tombstone(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fail(err)
	}
	found.Tombstone = stone.Signed
	if head, err := log.CheckTail(ctx); err != nil {
		found.Fault = err.Error()
	} else {
		found.Tail = &api.AuditHead{Seq: head.Seq, Time: head.Time, Hash: head.Hash.String()}
	}
	if p.Seq > 0 {
		if found.Line, found.Receipt, err = lineAndReceipt(ctx, log, p.Seq); err != nil {
			return fail(err)
		}
	}
	if err := proveSize(ctx, log, p, &found); err != nil {
		return fail(err)
	}
	return found, nil
}

// proveSize finds the root of a log's size, and the proof that the log of an earlier size is a part of it.
func proveSize(ctx context.Context, log logstore.Evidence, p *api.AuditInspectParams, found *api.AuditInspection) error {
	if p.Size == 0 {
		return nil
	}
	root, err := log.RootAt(ctx, p.Size)
	if err != nil {
		return ignoreNotFound(err)
	}
	if p.Old != nil {
		path, err := log.ProveExtension(ctx, *p.Old, p.Size)
		if err != nil {
			return ignoreNotFound(err)
		}
		for _, h := range path {
			found.Path = append(found.Path, h.String())
		}
	}
	found.Root = root.String()
	return nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func lineAndReceipt(ctx context.Context, log logstore.Evidence, seq uint64) (line, receipt string, err error) {
	text, err := log.Line(ctx, seq)
	if errors.Is(err, store.ErrNotFound) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	proof, err := log.ProveRecord(ctx, seq)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, logstore.ErrUnsigned) {
		return string(text), "", nil
	}
	if err != nil {
		return "", "", err
	}
	written, err := proof.MarshalText()
	return string(text), string(written), err
}

// snapshot copies the database, and keeps the copy until the caller has read it.
func (i *inspector) snapshot(context.Context, *api.Empty) (ipc.Feed, error) {
	return func(ctx context.Context, s api.Stream) (err error) {
		path, remove, err := i.store.Snapshot(ctx)
		if _, full := errors.AsType[*store.NoRoomError](err); full {
			return api.Errorf(api.Conflict, "%v; free some space, or stop the daemon: then the database is read where it is", err)
		}
		if err != nil {
			return err
		}
		defer func() {
			if err := remove(); err != nil {
				i.log.Error("cannot remove a copy of the database", zap.String("path", path), zap.Error(err))
			}
		}()
		chunk := api.StoreSnapshot{}
		if chunk.Database, err = filepath.Abs(i.database); err != nil {
			return err
		}
		if chunk.Path, err = filepath.Abs(path); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		chunk.Bytes = info.Size()
		if err := s.Send(ctx, chunk); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}, nil
}
