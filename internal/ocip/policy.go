package ocip

import "context"

// The actions a policy is asked about.
const (
	ActionExchange         = "agent_exchange"
	ActionExchangeCrossOrg = "agent_exchange_cross_org"
)

// PolicyInput is the question put to the policy. It is comparable, so an
// answer can be remembered by it.
type PolicyInput struct {
	Action       string
	ExchangeType ExchangeType
	Level        Level
	Source       Identity
	Target       Identity
	Round        int
	// CounterpartyKind is what is known of the other end: an agent, a declared
	// person, or nobody whom anybody declared. Inbound it is always an agent.
	CounterpartyKind Kind
}

// PolicyAnswer is what the policy said. The zero value denies.
type PolicyAnswer struct {
	Allow           bool
	RequireApproval bool
	Reason          string
	// MaxClassification, when HasMaxClassification, lowers the level that may
	// be shared in this exchange.
	MaxClassification    Level
	HasMaxClassification bool
	// MaxRounds, when above zero, lowers the exchange's round limit.
	MaxRounds int
	// Approvers, when above zero, is how many people must approve what a person
	// is asked about.
	Approvers int
}

// Policy answers questions. An error means that no answer could be had and is
// treated as a denial.
type Policy interface {
	// Evaluate answers one question. Name is the policy that answered, and
	// revision identifies its exact text and data.
	Evaluate(ctx context.Context, in PolicyInput) (answer PolicyAnswer, name, revision string, err error)
	// Lasts reports whether the same question has the same answer later. It has not if the
	// policy reads the clock.
	Lasts() bool
}

// ToolQuestion asks whether an agent may use a tool of its runtime.
type ToolQuestion struct {
	Agent Identity
	// Name is the tool's, and Server the MCP server that it is of, "" for the runtime's own.
	Name, Server string
	// Command is the line that a shell is given, and Folder where it runs, as far as the
	// runtime says.
	Command, Folder string
	// Arguments is the JSON object that the tool is called with.
	Arguments []byte
	// Map is the proxy's map of the server, "" where it has none or asks about nothing, and Found
	// the rules that found something in the arguments.
	Map   string
	Found []string
}

// ToolPolicy answers questions about tools. An error means that no answer could be had and
// is treated as a denial.
type ToolPolicy interface {
	// JudgesTools reports whether there is anything that answers.
	JudgesTools() bool
	EvaluateTool(context.Context, *ToolQuestion) (answer PolicyAnswer, name, revision string, err error)
}
