package exchangestate

import (
	"fmt"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
)

// LogHeadName is the member of the metadata that carries the newest checkpoint of the audit log
// with every message between agents of two daemons. The other side records it. So each side holds
// evidence of the other's log: a log that is cut or rewritten no longer matches the counterparties'
// copies.
const LogHeadName = "ocipLog"

// maxLogHead bounds another daemon's checkpoint, in bytes.
const maxLogHead = 1024

// LogHead caches the log head that messages carry. Its zero value is ready for use.
type LogHead struct{ last atomic.Pointer[logHead] }

// logHead is the newest checkpoint in its encoded form.
type logHead struct {
	seq        uint64
	annotation jsontext.Value
}

// Annotation returns the short form of the newest checkpoint of a store, nil if there is none.
func (h *LogHead) Annotation(signed logstore.Signed, log *zap.Logger) jsontext.Value {
	if signed.Seq == 0 {
		return nil
	}
	if known := h.last.Load(); known != nil && known.seq == signed.Seq {
		return known.annotation
	}
	short, err := audit.Annotate(signed.Note)
	if err != nil {
		log.Error("cannot say how far the audit log reaches", zap.Error(err))
		return nil
	}
	annotation, err := json.Marshal(short)
	if err != nil {
		panic("exchange: a checkpoint cannot fail to encode: " + err.Error())
	}
	h.last.Store(&logHead{seq: signed.Seq, annotation: annotation})
	return annotation
}

// PeerLogHead enters another daemon's log head into a record, as it was signed. If it is no
// checkpoint, the record says so, and nothing else about the message changes.
func PeerLogHead(metadata map[string]jsontext.Value, r *audit.Record) {
	raw, ok := metadata[LogHeadName]
	if !ok {
		return
	}
	var short audit.Annotation
	err := fmt.Errorf("longer than %d bytes", maxLogHead)
	if len(raw) <= maxLogHead {
		err = json.Unmarshal(raw, &short)
	}
	var signed string
	if err == nil {
		signed, err = short.Note()
	}
	if err != nil {
		r.Details["peerLogMalformed"] = true
		return
	}
	r.Details["peerLog"] = signed
}
