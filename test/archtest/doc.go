// Package archtest holds the rules of the architecture as tests that read the source
// themselves: which folder may import which, which libraries stay in which packages,
// which packages may read a clock, and which package-level variables may exist.
//
// There is nothing to call. The rules are data in layers_test.go, check_test.go reads
// the source, and TestLayers walks the module. A new package belongs in one of the
// folders; a new edge between folders is argued for in the table.
//
// The source is parsed in process, through files the go command can see being
// read, so that a cached pass is never older than the tree it passed.
package archtest
