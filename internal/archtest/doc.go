// Package archtest holds the rules of the layers as tests that read the source
// themselves: who may import whom, what stays behind which fence, who may read
// a clock, and which package-level variables may exist.
//
// There is nothing to call. The rules are data in house_test.go, the reading is
// in check_test.go, and TestLayers walks the module. Whoever adds a package adds
// its row to the table in the same change; whoever needs a new edge argues for
// it there.
//
// The source is parsed in process, through files the go command can see being
// read, so that a cached pass is never older than the tree it passed.
package archtest
