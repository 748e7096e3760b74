// Package text knows how a text looks to its reader: whether a character shows as itself ([Shows]),
// how to write out one that does not ([Visible], [AppendJSON]), which of several spellings ids use
// ([Canonical], [Fold]), which texts a reader takes for each other ([Skeleton]), and how a
// receiver's program changes a text before it shows it ([Render]).
//
// All code that decides, records or prints asks this package, so that every part sees the same
// text.
package text
