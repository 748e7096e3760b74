package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"go.uber.org/zap"
)

// replaySpeed is how fast the open rows are made from a log, without reading and hashing it.
func replaySpeed(*bench) (result, error) {
	var (
		lines        [][]byte
		head         audit.Head
		lastExchange string
	)
	for i := range 100_000 {
		r := benchRecord(uuid.Must(uuid.NewV7()).String())
		if r.Round = i%r.MaxRounds + 1; r.Round == 1 {
			r.Opens = int(time.Now().Add(time.Hour).UnixMilli())
		} else {
			r.ExchangeID = lastExchange
		}
		lastExchange = r.ExchangeID
		body, err := audit.Encode(r)
		if err != nil {
			return result{}, err
		}
		var line []byte
		line, head = head.Seal(nil, time.Now(), body)
		lines = append(lines, line)
	}
	best := 0.0
	for range 3 {
		replay, began := fold.NewReplay(), time.Now()
		for i, line := range lines {
			if err := replay.Add(uint64(i)+1, line); err != nil {
				return result{}, err
			}
		}
		best = max(best, float64(len(lines))/time.Since(began).Seconds())
	}
	return result{fmt.Sprintf("%.0f records/s", best), "—", "—", best >= 200_000}, nil
}

// recorded makes a store with so many records, of which open are of exchanges in progress, and as many behind the last
// checkpoint.
func (b *bench) recorded(name string, records, open int) (store.Options, error) {
	dir := filepath.Join(b.dir, name, "openclawos")
	o := store.Options{Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop(), Signing: signing(dir), RowKey: rowKey(dir)}
	s, err := store.Open(b.ctx, o)
	if err != nil {
		return o, err
	}
	write := func(n int, outcome ocip.Outcome) error {
		for done := 0; done < n; {
			change := new(store.Change)
			for ; done < n && len(change.Records) < 1000; done++ {
				id := uuid.Must(uuid.NewV7()).String()
				r := benchRecord(id)
				r.Outcome = string(outcome)
				change.Records = append(change.Records, r)
				change.Add(&store.Exchange{Exchange: ocip.Exchange{
					ID: id, ConversationID: id, Type: ocip.InformationQuery, Agent: r.AgentID, Counterparty: "agent-p0", SessionKey: "chat:p0",
					Outcome: outcome, Round: 1, MaxRounds: 3, OpenedAt: time.Now(), UpdatedAt: time.Now(), ExpiresAt: time.Now().Add(24 * time.Hour),
				}})
			}
			if _, err := s.Commit(change); err != nil {
				return err
			}
		}
		return nil
	}
	err = cmp.Or(write(records, ocip.Resolved), s.Sign(), write(open, ocip.InProgress))
	return o, errors.Join(err, s.Close())
}

// takeUpSpeed is how long a start takes to compare 1000 open rows with the log.
func takeUpSpeed(b *bench) (result, error) {
	o, err := b.recorded("take-up", 1000, 1000)
	if err != nil {
		return result{}, err
	}
	s, err := store.Open(b.ctx, o)
	if err != nil {
		return result{}, err
	}
	reader, err := db.NewReader(o.Path, 1, nil)
	if err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	var samples []time.Duration
	for range 15 {
		began := time.Now()
		if _, err := foldrows.TakeUp(b.ctx, reader, s.Log, fold.NewSet(), time.Now(), false, zap.NewNop()); err != nil {
			return result{}, errors.Join(err, reader.Close(), s.Close())
		}
		samples = append(samples, time.Since(began))
	}
	t := p50(samples)
	return result{t.Round(100 * time.Microsecond).String(), "—", "—", t <= 20*time.Millisecond}, errors.Join(reader.Close(), s.Close())
}

// openFlat is how much longer a store with 400,000 records takes to open than one with 50,000, both with 100 open rows.
func openFlat(b *bench) (result, error) {
	var best [2]time.Duration
	for i, records := range [...]int{50_000, 400_000} {
		var err error
		if best[i], err = b.opening(records, 100); err != nil {
			return result{}, err
		}
	}
	ratio := float64(best[1]) / float64(best[0])
	return result{best[1].Round(100 * time.Microsecond).String(), best[0].Round(100 * time.Microsecond).String(), fmt.Sprintf("%.2f×", ratio), ratio <= 1.1}, nil
}

// openRows measures how much longer a store takes to open for each further 1000 open rows. The last checkpoint
// covers none of them.
func openRows(b *bench) (result, error) {
	const records, few, many = 50_000, 100, 10_100
	least, err := b.opening(records-few, few)
	if err != nil {
		return result{}, err
	}
	most, err := b.opening(records-many, many)
	if err != nil {
		return result{}, err
	}
	each := (most - least) * 1000 / (many - few)
	return result{each.Round(100 * time.Microsecond).String(), least.Round(100 * time.Microsecond).String(), "—", each <= 20*time.Millisecond}, nil
}

// opening is how long a store with so many records and open rows takes to open: the shortest time of many, since what
// differs is the work, and not what else the machine does.
func (b *bench) opening(records, open int) (best time.Duration, err error) {
	o, err := b.recorded(fmt.Sprint("opening-", records, "-", open), records, open)
	if err != nil {
		return 0, err
	}
	for range 15 {
		began := time.Now()
		s, err := store.Open(b.ctx, o)
		if err != nil {
			return 0, err
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
		if err := s.Close(); err != nil {
			return 0, err
		}
	}
	return best, nil
}
