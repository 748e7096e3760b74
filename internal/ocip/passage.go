package ocip

// Passage is one string of a message.
type Passage struct {
	// Member says where it stands, as a path such as metadata.note or
	// exchange.data[0].source. It is empty for the content.
	Member string
	Text   string
	// Prose has commitments looked for. Secrets are looked for in every passage.
	Prose bool
}
