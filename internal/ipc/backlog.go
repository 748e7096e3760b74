package ipc

import "sync"

// backlog holds the frames that wait in a queue. They are in pieces, so that a long queue is never copied
// and its beginning is freed while the rest waits. The queue's lock guards it.
type backlog struct {
	// The pieces in filled are complete, filling is the last. waiting counts their bytes.
	filled  []piece
	filling piece
	waiting int
	// lastFrame is the length of the last frame.
	lastFrame int
	spare     []byte
	// pieces is the shared memory of free pieces; nil keeps none.
	pieces *pieces
}

// piece is a part of the queue. loose counts the bytes of its frames that are no deliveries.
type piece struct {
	frames []byte
	loose  int64
}

// pieceBytes is the size from which a piece takes no more frames.
const pieceBytes = 64 << 10

// keepBuffer is the largest piece whose memory a connection keeps for the next one. A longer one is
// moved to one of pieceRoom bytes, which connections share.
const (
	keepBuffer = 16 << 10
	pieceRoom  = pieceBytes + keepBuffer
)

// pieces is memory of pieces that no connection of a server uses now.
type pieces struct{ pool sync.Pool }

func (p *pieces) get() []byte {
	if p != nil {
		if room, ok := p.pool.Get().(*[pieceRoom]byte); ok {
			return room[:0]
		}
	}
	return make([]byte, 0, pieceRoom)
}

// put takes a piece's memory back, and reports whether it came from get.
func (p *pieces) put(frames []byte) bool {
	if p == nil || cap(frames) != pieceRoom {
		return false
	}
	p.pool.Put((*[pieceRoom]byte)(frames[:pieceRoom]))
	return true
}

// makeRoom makes room in the last piece for a frame as long as the one before, and returns where it begins.
func (b *backlog) makeRoom() (begin int) {
	if len(b.filling.frames) >= pieceBytes {
		b.filled = append(b.filled, b.filling)
		b.filling = piece{}
		if b.lastFrame < pieceBytes/4 { // a long one makes its own room
			b.filling.frames = b.pieces.get()
		}
	}
	begin = len(b.filling.frames)
	if small := b.filling.frames; cap(small) <= keepBuffer && begin+b.lastFrame > keepBuffer {
		b.filling.frames = append(b.pieces.get(), small...)
		b.spare = small[:0]
	}
	return begin
}

// reuse keeps the memory of a piece that was written.
func (b *backlog) reuse(frames []byte) {
	if !b.pieces.put(frames) && cap(frames) <= keepBuffer {
		b.spare = frames[:0]
	}
}

// take takes the first piece off the backlog.
func (b *backlog) take() (first piece) {
	if len(b.filled) > 0 {
		first = b.filled[0]
		b.filled[0] = piece{}
		b.filled = b.filled[1:]
	} else {
		first, b.filling = b.filling, piece{frames: b.spare}
		b.spare = nil
	}
	b.waiting -= len(first.frames)
	return first
}
