package text

// Passage is one string of a message.
type Passage struct {
	// Member says which: nothing for the content, else the path to it, as in
	// metadata.note or exchange.data[0].source.
	Member string
	Text   string
	// Prose is set where people write sentences: what a sentence can promise is
	// looked for there.
	Prose bool
}
