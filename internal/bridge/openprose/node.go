package openprose

// node is a statement, an expression, or a part of one, with its position in the script.
type node struct {
	kind string
	at   int
	// name is the name that is called, defined or referred to, and nameAt its position.
	name   string
	nameAt int
	// targets are the names that a binding binds, or the parameters of a block or loop.
	targets []*node
	// text is the text of a string or a condition.
	text string
	// value is the value that is bound, returned, thrown or iterated over.
	value *node
	// props are properties, or the entries of an object.
	props []*node
	// items are arguments, elements, options, clauses or steps of a pipeline.
	items []*node
	body  []*node
	// max is a loop's bound.
	max *node
}

// The kinds of nodes.
const (
	kindUse      = "use"
	kindInput    = "input"
	kindOutput   = "output"
	kindAgent    = "agent"
	kindBlock    = "block"
	kindLet      = "let"
	kindConst    = "const"
	kindAssign   = "="
	kindReturn   = "return"
	kindThrow    = "throw"
	kindCall     = "call"
	kindSession  = "session"
	kindResume   = "resume"
	kindDo       = "do"
	kindDoCall   = "do name"
	kindParallel = "parallel"
	kindRepeat   = "repeat"
	kindFor      = "for"
	kindLoop     = "loop"
	kindIf       = "if"
	kindElif     = "elif"
	kindElse     = "else"
	kindChoice   = "choice"
	kindOption   = "option"
	kindTry      = "try"
	kindCatch    = "catch"
	kindFinally  = "finally"
	kindPipe     = "pipeline"
	kindStep     = "step"
	kindString   = "string"
	kindNumber   = "number"
	kindBool     = "boolean"
	kindNull     = "null"
	kindRef      = "reference"
	kindObject   = "object"
	kindArray    = "array"
	kindProp     = "property"
	kindName     = "name"
)
