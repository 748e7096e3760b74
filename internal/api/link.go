package api

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// Peer is the process at the other end of a connection, as the operating
// system vouches for it.
type Peer interface {
	// Credentials returns the process's user, group and process id at the time
	// it connected.
	Credentials() (uid, gid uint32, pid int32)
	// Executable returns the path of the program the process runs. It fails
	// where the process is gone, so that no other process is taken for it.
	Executable() (string, error)
	// Present returns why what comes through the connection is not the word of the process that
	// connected, nil if it may be taken for that: the process runs, runs what it ran when it
	// connected, and nobody else has written.
	Present() error
	// Process names the process as Ancestors does, "" where it runs and cannot be
	// seen.
	Process() (string, error)
	// Ancestors names the process, its parent and so on. A name is never given
	// to another process.
	Ancestors() ([]string, error)
}

// Link is one connection as the kernel sees it. Its methods are safe for concurrent use.
type Link interface {
	Line
	// Acknowledges says whether the app acknowledges its messages. Otherwise each counts as taken once
	// the app has read it.
	Acknowledges(does bool)
	// Acknowledge takes the app's word that it is done with an event. It reports whether that was a
	// message that the app had not acknowledged.
	Acknowledge(eventID string) bool
	// Close ends the connection: open requests are answered and queued events are sent, within the
	// limit. It does not wait for that.
	Close(within time.Duration)
}

// Line is the place of a connection to put events.
type Line interface {
	// Put queues an event and never waits. The fate is nil if the event has nobody's text. Put
	// reports false if the event was not queued because the connection is ending. The payload is
	// copied.
	Put(e gate.Event, fate gate.Fate) bool
	// Recall takes back queued messages if one of them may not be written any more. It drops the
	// events of observers that may not be written, and returns all messages that it has taken back:
	// they may be put again. The connection is ended if such a text is half written, or part of an
	// answer. Recall waits until no write is under way, and calls Stays meanwhile. Meanwhile the
	// caller puts no messages, and there is no other Recall.
	Recall() (back []gate.Recallable, ended bool)
	// Flush has what is queued written, and does not wait for it. A sent event is written by the
	// next flush at the latest.
	Flush()
	// Room waits until there is ample room in the queue, so that a long
	// backlog can be sent without overrunning it. It fails when the
	// connection ends.
	Room(ctx context.Context) error
	// Crowded reports whether the queue is so full that Room would wait.
	Crowded() bool
}

// Stream takes the chunks of a streaming answer. Send waits for room, so a
// reader that is slow slows its own stream and nothing else. The chunks of one
// call wake the reader once.
type Stream interface {
	Send(ctx context.Context, chunks ...any) error
}

// AcknowledgeParams says that an app is done with a message.
type AcknowledgeParams struct {
	ID string `json:"id" is:"required max=256" doc:"The id of the event that gave the message, which is beside its type and not in its payload."`
}
