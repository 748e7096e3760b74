//go:build !mutant

// Package mutant lets a test switch one guard of the daemon off, to see that the test
// notices. Only a build with the tag mutant can do that: in every other build no guard is
// off, and the compiler leaves the question out.
package mutant

// Off reports whether a guard is switched off.
func Off(string) bool { return false }
