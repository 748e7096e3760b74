package ocip

import "context"

// The actions in questions to a policy.
const (
	ActionExchange         = "agent_exchange"
	ActionExchangeCrossOrg = "agent_exchange_cross_org"
)

// PolicyInput is the question to the policy. It is comparable, so an answer can be cached by it.
type PolicyInput struct {
	Action       string
	ExchangeType ExchangeType
	Level        Level
	Source       Identity
	Target       Identity
	Round        int
	// CounterpartyKind is the kind of the other end: an agent, a declared person, or an undeclared
	// counterparty. For an incoming message it is always an agent.
	CounterpartyKind Kind
}

// PolicyAnswer is the policy's answer. The zero value denies.
type PolicyAnswer struct {
	Allow           bool
	RequireApproval bool
	Reason          string
	// MaxClassification, if HasMaxClassification is set, lowers the level that may be shared in
	// this exchange.
	MaxClassification    Level
	HasMaxClassification bool
	// MaxRounds, when above zero, lowers the exchange's round limit.
	MaxRounds int
	// Approvers, when above zero, is the number of people who must approve if a person is asked.
	Approvers int
}

// Policy answers questions. An error means that there is no answer, and counts as a denial.
type Policy interface {
	// Evaluate answers one question. Name is the policy that answered, and revision identifies its
	// exact text and data.
	Evaluate(ctx context.Context, in PolicyInput) (answer PolicyAnswer, name, revision string, err error)
	// Lasts reports whether the same question has the same answer later. It does not if the policy
	// reads the clock.
	Lasts() bool
}

// ToolQuestion asks whether an agent may use a tool of its runtime.
type ToolQuestion struct {
	Agent Identity
	// Name is the tool's. Server is its MCP server, "" for a tool of the runtime itself.
	Name, Server string
	// Command is the shell's command line, and Folder its working directory, if the runtime reports
	// them.
	Command, Folder string
	// Arguments is the JSON object of the call.
	Arguments []byte
	// Map is the proxy's map of the server, "" if it has none or never asks. Found lists the rules
	// that found something in the arguments.
	Map   string
	Found []string
}

// ToolPolicy answers questions about tools. An error means that there is no answer, and counts as a
// denial.
type ToolPolicy interface {
	// JudgesTools reports whether any policy answers.
	JudgesTools() bool
	EvaluateTool(context.Context, *ToolQuestion) (answer PolicyAnswer, name, revision string, err error)
}
