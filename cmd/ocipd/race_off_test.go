//go:build !race

package main

// raced is set where the race detector watches.
const raced = false
