// Package ipc serves the kernel protocol over Unix sockets: connections, the method table, and
// access to methods. The form of lines and messages is that of
// [github.com/openclawos/ocipd/internal/api/wire].
//
// One JSON object per line goes in each direction. A connection reads its lines in bounded memory,
// decodes them strictly, checks access in one place and calls the kernel through the interfaces of
// this package. It never waits for a reader: the queue of a slow one is bounded, and at the limit
// the connection ends.
//
// The caller makes a [Server] with the kernel behind it, gives it listeners made by [Listen], and
// closes it when done.
//
// Source: OpenClawOS IPC protocol (seed 003) and docs/reference/protocol/connecting.md.
//
// # The folder
//
// The folder internal/ipc holds the two sockets: connections, limits, access. It may import the
// packages of base, ocip, audit and api.
package ipc
