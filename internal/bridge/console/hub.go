package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"golang.org/x/sync/errgroup"
)

const (
	// maxQueue bounds the bytes that wait for one page.
	maxQueue = 4 << 20
	// recordsEvery is the time between two groups of records, so that the console and its browsers wake up
	// less often: a busy log is drawn 25 times a second. A line waits for gatherTime for others of its group.
	recordsEvery = 40 * time.Millisecond
	gatherTime   = 2 * time.Millisecond
	// maxPages bounds the open streams.
	maxPages = 32
	// lookEvery is the time between attempts to reach a daemon that is away, and statusEvery that
	// between two questions for its status.
	lookEvery   = 250 * time.Millisecond
	statusEvery = time.Second
)

// hub follows the daemon once for all pages: its log, its approval requests and its status. While
// there is no page it follows nothing.
type hub struct {
	dial func(context.Context) (*client.Client, error)
	now  func() time.Time
	// wanted wakes run when a page comes.
	wanted chan struct{}

	mu sync.Mutex
	// pages are the open streams, and coming counts those that wait for the daemon's state.
	pages  map[*stream]bool
	coming int
	// leave ends the following of the daemon, and is nil while the hub follows nothing. left is set if
	// the hub ended it because no page was there.
	leave context.CancelFunc
	left  bool
	// known is closed once it is known whether the daemon is there, and replaced when the hub follows
	// it no more.
	known chan struct{}
	// up is set while the daemon answers; else since and because say why not.
	up      bool
	since   time.Time
	because string
	// seq is the last record that was passed on. A new page is told status, waiting and caught first.
	seq     uint64
	status  []byte
	waiting map[string][]byte
	caught  bool
}

func newHub(dial func(context.Context) (*client.Client, error), now func() time.Time) *hub {
	return &hub{dial: dial, now: now, wanted: make(chan struct{}, 1), pages: make(map[*stream]bool), known: make(chan struct{})}
}

// stream is the open answer to one page.
type stream struct {
	wake chan struct{}
	// end stops a write that waits for the page.
	end func()

	mu      sync.Mutex
	lines   [][]byte
	waiting int // bytes of lines, and of those being written
	over    bool
}

// put queues lines for the page. A page that does not read is ended: it resumes behind its last
// record.
func (s *stream) put(lines ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range lines {
		if s.over {
			return
		}
		if s.waiting += len(line); s.waiting > maxQueue {
			s.over, s.lines = true, nil
			s.end()
			return
		}
		s.lines = append(s.lines, line)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the queued lines, and empties the queue.
func (s *stream) take() (batch []byte, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = bytes.Join(s.lines, nil)
	s.lines = nil
	return batch, s.over
}

// wrote notes how many bytes the page was given.
func (s *stream) wrote(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= n
}

// member is a name of a line, with its value as JSON.
type member struct {
	name  string
	value jsontext.Value
}

// line is one line of a stream: its kind, and members in order.
func line(kind string, members ...member) []byte {
	b := append([]byte(`{"kind":`), api.String(kind)...)
	for _, m := range members {
		b = append(append(b, ','), api.String(m.name)...)
		b = append(append(b, ':'), m.value...)
	}
	return append(b, '}', '\n')
}

// run follows the daemon while there are pages, until the context ends.
func (h *hub) run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wanted:
		case <-again.C:
		}
		within, cancel := context.WithCancel(ctx)
		if !h.begin(cancel) {
			cancel()
			continue
		}
		err := h.follow(within)
		cancel()
		if wait, more := h.rest(err); more {
			again.Reset(wait)
		}
	}
}

// begin reports whether anybody wants to be told.
func (h *hub) begin(leave context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pages)+h.coming == 0 {
		return false
	}
	h.leave = leave
	return true
}

// rest notes that the daemon is not followed any more. It reports whether somebody still wants it to
// be, and when to try.
func (h *hub) rest(err error) (wait time.Duration, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	more = len(h.pages)+h.coming > 0
	switch h.leave = nil; {
	case h.left || !more:
		h.left, h.up, h.seq, h.since = false, false, 0, time.Time{}
		if !more {
			h.unknown()
		}
		return 0, more
	case h.up || h.since.IsZero():
		h.up, h.since, h.because = false, h.now(), err.Error()
		h.tell(h.gone())
		h.know()
	}
	return lookEvery, true
}

// The functions below are called with the lock.

func (h *hub) know() {
	select {
	case <-h.known:
	default:
		close(h.known)
	}
}

// unknown makes newcomers wait until it is known whether the daemon is there.
func (h *hub) unknown() {
	select {
	case <-h.known:
		h.known = make(chan struct{})
	default:
	}
}

func (h *hub) gone() []byte {
	return line("gone", member{"since", api.String(h.since.UTC().Format(time.RFC3339))}, member{"because", api.String(h.because)})
}

func (h *hub) tell(lines ...[]byte) {
	for s := range h.pages {
		s.put(lines...)
	}
}

// follow follows the daemon over one connection, until that ends.
func (h *hub) follow(ctx context.Context) error {
	c, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, status, err := statusOf(ctx, c)
	if err != nil {
		return err
	}
	h.back(raw, status.Audit.Seq)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.records(ctx, c) })
	group.Go(func() error { return h.requests(ctx, c) })
	group.Go(func() error { return h.states(ctx, c) })
	return group.Wait()
}

func statusOf(ctx context.Context, c *client.Client) (raw jsontext.Value, status api.Status, err error) {
	if err = c.Call(ctx, "kernel.status", nil, &raw); err == nil {
		err = json.Unmarshal(raw, &status)
	}
	return raw, status, err
}

// back notes that the daemon is there. Requests are told anew.
func (h *hub) back(raw jsontext.Value, seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.since.IsZero() {
		h.tell(line("back"))
	}
	// A restored log is shorter.
	if h.seq == 0 || seq < h.seq {
		h.seq = seq
	}
	h.up, h.since, h.status = true, time.Time{}, line("status", member{"status", raw})
	h.waiting, h.caught = make(map[string][]byte), false
	h.tell(h.status)
	h.know()
}

// errStreamEnded means that the daemon has ended a stream.
var errStreamEnded = errors.New("the daemon ended the stream")

// records passes the log on.
func (h *hub) records(ctx context.Context, c *client.Client) error {
	h.mu.Lock()
	after := h.seq
	h.mu.Unlock()
	err := c.Each(ctx, "audit.tail", api.AuditTailParams{After: &after, Follow: true, Gather: int(recordsEvery.Milliseconds())}, func(chunk jsontext.Value) error {
		seq, err := seqOf(chunk)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seq = seq
		h.tell(line("record", member{"record", chunk}))
		return nil
	})
	if err == nil {
		err = errStreamEnded
	}
	return err
}

// seqOf is the number of a record.
func seqOf(record jsontext.Value) (uint64, error) {
	var r struct {
		Seq uint64 `json:"seq"`
	}
	err := json.Unmarshal(record, &r)
	return r.Seq, err
}

// requests passes approval requests on.
func (h *hub) requests(ctx context.Context, c *client.Client) error {
	err := c.Each(ctx, "approval.watch", nil, func(chunk jsontext.Value) error {
		var news struct {
			Approval jsontext.Value `json:"approval"`
			Caught   bool           `json:"caught"`
		}
		if err := json.Unmarshal(chunk, &news); err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(news.Approval) > 0 {
			a, err := summary(news.Approval)
			if err != nil {
				return err
			}
			one := rowOf(news.Approval, a)
			text := line("request", member{"approval", one.Approval}, member{"why", api.String(one.Why)}, member{"rank", jsontext.Value(strconv.Itoa(one.Rank))}, member{"like", api.String(one.Like)})
			if delete(h.waiting, a.ApprovalID); a.State == api.ApprovalPending {
				h.waiting[a.ApprovalID] = text
			}
			h.tell(text)
		}
		if news.Caught {
			h.caught = true
			h.tell(line("caught"))
		}
		return nil
	})
	if err == nil {
		err = errStreamEnded
	}
	return err
}

// states passes the status on when it has changed.
func (h *hub) states(ctx context.Context, c *client.Client) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		raw, _, err := statusOf(ctx, c)
		if err != nil {
			return err
		}
		text := line("status", member{"status", raw})
		h.mu.Lock()
		if !bytes.Equal(text, h.status) {
			h.status = text
			h.tell(text)
		}
		h.mu.Unlock()
	}
}

// join adds a page. It returns the first lines for the page, and the last record that the page is
// not told by the hub. It fails while the daemon is away.
func (h *hub) join(ctx context.Context, s *stream) (first [][]byte, seq uint64, no *refusal) {
	h.mu.Lock()
	if len(h.pages)+h.coming >= maxPages {
		h.mu.Unlock()
		return nil, 0, refuse(http.StatusServiceUnavailable, api.Conflict, "%d pages are open: close one", maxPages)
	}
	h.coming++
	known := h.known
	h.mu.Unlock()
	select {
	case h.wanted <- struct{}{}:
	default:
	}
	select {
	case <-known:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.coming--
	if !h.up {
		h.alone()
		no := refuse(http.StatusServiceUnavailable, api.ConnectionClosed, "the daemon does not answer: %s", h.because)
		no.Details = map[string]string{"since": h.since.UTC().Format(time.RFC3339)}
		return nil, 0, no
	}
	first = append(first, h.status)
	for _, id := range slices.Sorted(maps.Keys(h.waiting)) {
		first = append(first, h.waiting[id])
	}
	if h.caught {
		first = append(first, line("caught"))
	}
	h.pages[s] = true
	return first, h.seq, nil
}

// part removes a page.
func (h *hub) part(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pages, s)
	h.alone()
}

// alone stops following the daemon if nobody is left. It is called with the lock.
func (h *hub) alone() {
	if len(h.pages)+h.coming == 0 && h.leave != nil {
		h.leave()
		h.left, h.up = true, false
		h.unknown()
	}
}

// missed visits the records behind one, up to another, over a connection of its own: a page that
// reads slowly may not stop the others.
func (h *hub) missed(ctx context.Context, after, upTo uint64, visit func(record jsontext.Value) error) error {
	if after >= upTo {
		return nil
	}
	c, err := h.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Each(ctx, "audit.tail", api.AuditTailParams{After: &after}, func(chunk jsontext.Value) error {
		switch seq, err := seqOf(chunk); {
		case err != nil:
			return err
		case seq > upTo:
			return io.EOF
		}
		return visit(chunk)
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// stream answers with records, requests and the status as they come, until the page closes it.
func (c *Console) stream(q *request) (answer, *refusal) {
	p, no := parse[struct {
		After *uint64 `json:"after,omitzero"`
	}](q.body)
	if no != nil {
		return nil, no
	}
	ctx, cancel := context.WithDeadline(q.Context(), q.ends)
	defer cancel()
	control := http.NewResponseController(q.w)
	s := &stream{wake: make(chan struct{}, 1)}
	s.end = func() {
		cancel()
		_ = control.SetWriteDeadline(time.Unix(1, 0)) // the connection may be closed
	}
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	first, seq, no := c.hub.join(ctx, s)
	if no != nil {
		return nil, no
	}
	defer c.hub.part(s)
	q.w.Header().Set("Content-Type", "application/x-ndjson")
	q.w.WriteHeader(http.StatusOK)
	if err := s.serve(ctx, c.hub, q.w, control, first, p.After, seq); err != nil && ctx.Err() == nil {
		c.o.Log.Debug("a stream has ended", "error", err)
	}
	// An end in good form would tell the page that nothing is missing.
	panic(http.ErrAbortHandler)
}

// serve writes the lines of a stream.
func (s *stream) serve(ctx context.Context, h *hub, w io.Writer, control *http.ResponseController, first [][]byte, after *uint64, seq uint64) error {
	for _, text := range first {
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if after != nil {
		err := h.missed(ctx, *after, seq, func(record jsontext.Value) error {
			_, err := w.Write(line("record", member{"record", record}))
			return err
		})
		if err != nil {
			return err
		}
	}
	gather := time.NewTimer(gatherTime)
	defer gather.Stop()
	for {
		batch, over := s.take()
		if over {
			return errors.New("the page has not read")
		}
		if len(batch) > 0 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
		}
		if err := control.Flush(); err != nil {
			return err
		}
		s.wrote(len(batch))
		if len(batch) > 0 {
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		gather.Reset(gatherTime)
		select {
		case <-gather.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
