// Package examples holds programs to copy, in several languages, that ask ocipd before
// they send. Its tests run each of them beside the built daemon.
package examples
