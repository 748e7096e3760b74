package kernel

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// The newest checkpoint of the audit log goes along with every message between
// agents of two daemons, as metadata.ocipLog, and is put on record by the other
// side. So each holds evidence of the other's log: one whose tail was cut, or
// that was rewritten, no longer fits what its counterparties have.
const logHeadName = "ocipLog"

// maxLogHead bounds what another daemon may say of its log.
const maxLogHead = 1024

// logHead is the newest checkpoint in the form that travels.
type logHead struct {
	seq        uint64
	annotation jsontext.Value
}

// ownLogHead returns the newest checkpoint's short form, nil where there is
// none.
func (k *Kernel) ownLogHead() jsontext.Value {
	signed := k.store.Checkpoint()
	if signed.Seq == 0 {
		return nil
	}
	if known := k.logHead.Load(); known != nil && known.seq == signed.Seq {
		return known.annotation
	}
	short, err := audit.Annotate(signed.Note)
	if err != nil {
		k.log.Error("cannot say how far the audit log reaches", zap.Error(err))
		return nil
	}
	annotation, err := json.Marshal(short)
	if err != nil {
		panic("kernel: a checkpoint cannot fail to encode: " + err.Error())
	}
	k.logHead.Store(&logHead{seq: signed.Seq, annotation: annotation})
	return annotation
}

// peerLogHead enters into a record what came along of another daemon's log. It
// is kept as it was signed; what is no checkpoint is kept as a fact, and changes
// nothing else about the message.
func peerLogHead(metadata api.Object, r *audit.Record) {
	raw, ok := metadata[logHeadName]
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
