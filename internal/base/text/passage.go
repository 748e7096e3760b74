package text

// Passage is one string of a message.
type Passage struct {
	// Member names the string: empty for the content, else the path to it, such as metadata.note or
	// exchange.data[0].source.
	Member string
	Text   string
	// Prose is set for members with sentences: only in those do detectors look for promises.
	Prose bool
}
