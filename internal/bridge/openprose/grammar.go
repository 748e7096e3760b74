package openprose

// OpenProse's own library uses some forms that its grammar lacks: repeat with a name
// instead of a number, a repeat as a value, and parallel repeat. Models run them, so they
// are warnings. A bound that the protocol's safety depends on (max) has to be a number.

// shape reads the words after "parallel", if they make it another loop.
func shape(p *parser, n *node) {
	switch {
	case n.kind != kindParallel:
	case p.word("for"):
		n.kind, n.text = kindFor, kindParallel
	case p.word(kindRepeat):
		n.kind, n.text = kindRepeat, kindParallel
		p.blanks()
	}
}

// times reads the count of a repeat: a number, or a name.
func times(p *parser) (*node, error) {
	switch {
	case p.pos < len(p.src) && (digit(p.src[p.pos]) || p.src[p.pos] == '-'):
		return p.number()
	case p.pos < len(p.src) && letter(p.src[p.pos]):
		return p.reference()
	}
	return nil, fail(p.pos, "%s stands where a number belongs: “repeat” takes how often, and “loop” a condition", p.shown())
}

// repeat checks a repeat.
func repeat(k *program, n *node, s *scope) {
	if n.text == kindParallel {
		k.warn(n.at, "“parallel” and “repeat” stand together, which the grammar does not have: there are “parallel:” and “parallel for”")
	}
	if n.name == kindLet {
		k.warn(n.at, "a loop gives no value that can be bound, by the grammar: “let” takes “parallel:”")
	}
	if n.value != nil && n.value.kind == kindRef {
		k.warn(n.value.at, "a name stands where the grammar has a number: “repeat” takes how often, and “loop” a condition")
		k.value(n.value, s)
	} else {
		k.positive(n.value, "repeat")
	}
	k.rounds(n, s)
}
