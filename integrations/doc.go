// Package integrations holds what runs inside other programs so that their agents'
// messages are decided by the daemon. Its tests run each beside the built daemon.
package integrations
