// Package text says how a text looks to the one who reads it: whether a
// character shows as what it is ([Shows]), how a text is written out where one
// does not ([Visible], [AppendJSON]), which of several spellings is the one that ids are written in
// ([Canonical], [Fold]), which texts a reader takes for each other ([Skeleton]),
// and what a receiver's program makes of a text before it shows it ([Render]).
//
// Whoever decides, records or prints asks here, so that none of them sees a
// text that another does not.
package text
