//go:build race

package buildtest

// Raced is set where the race detector watches. Sweeps, of which each case is like the
// others, make fewer of them then: `make test` makes them all without it.
const Raced = true
