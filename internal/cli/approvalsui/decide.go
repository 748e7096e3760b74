package approvalsui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
)

// DecideOptions are the flags of a decision.
type DecideOptions struct {
	Note, Digest, Content string
	Yes, JSON             bool
	Sign                  bool
	Key, Signature        string
	Beyond
}

// Sends reports whether a decision lets something happen. If so, the person must have seen it.
func Sends(decision string) bool {
	return decision == api.DecideApprove || decision == api.DecideTakeover
}

// Check returns an error if flags contradict each other.
func (f *DecideOptions) Check(decision string, interactive bool) error {
	if err := f.Beyond.Check(); err != nil {
		return err
	}
	switch {
	case len(f.Note) > api.MaxNote:
		return cli.Usagef("cannot use the --note: it is longer than %d bytes", api.MaxNote)
	case f.Content == "-" && f.Signature == "-":
		return cli.Usagef("cannot read both --content and --signature from stdin")
	case !Sends(decision):
		return nil
	case f.Yes && f.Digest == "":
		return cli.Usagef("cannot %s with --yes alone: --digest says what you saw", decision)
	case f.JSON && !f.Yes:
		return cli.Usagef("cannot %s with --json alone: programs give --yes --digest too", decision)
	case !f.Yes && !interactive:
		return cli.Usagef("cannot %s where no terminal can ask: look at it with show, and give --yes --digest DIGEST", decision)
	}
	return nil
}

// Decide sends a person's decision about a held message to the daemon.
func (s *People) Decide(ctx context.Context, name, decision string, f DecideOptions) error {
	keys, err := s.OpenKey(f.Key)
	if err != nil {
		return err
	}
	content, err := s.words(ctx, f.Content)
	if err != nil {
		return err
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := findApproval(ctx, c, name)
	if err != nil {
		return fmt.Errorf("cannot %s the request: %w", describe.Verb(decision), err)
	}
	if err := s.mayDecide(&a.Approval, decision, f.Digest); err != nil {
		return err
	}
	exchange, err := f.bounds(&a.Approval, time.Now())
	if err != nil {
		return err
	}
	if err := s.confirm(ctx, &a.Approval, decision, content, exchange, f.Yes || f.JSON); err != nil {
		return err
	}
	params := api.ApprovalResolveParams{ApprovalID: a.ApprovalID, Decision: decision, Note: f.Note, Content: content, Exchange: exchange}
	if params.Signature, err = s.signature(ctx, &a.Approval, decision, content, f.Note, exchange, keys, f); err != nil {
		return err
	}
	// A decision that sends nothing applies to any version.
	if Sends(decision) || params.Signature != "" {
		params.Digest = a.Digest
	}
	result, err := resolveApproval(ctx, c, params)
	if err != nil {
		return s.refusedDecision(err, decision, a.ApprovalID)
	}
	if f.JSON {
		return s.PrintJSON(result)
	}
	fmt.Fprintln(s.Stdout, describe.Decided(a.Kind, result))
	switch {
	case result.GrantID != "":
		fmt.Fprintf(s.Stdout, "its exchange is approved within these bounds: ocipd approvals revoke %s takes that back\n", cli.Argument(result.GrantID))
	case exchange != nil && result.State == api.ApprovalApproved:
		fmt.Fprintln(s.Stdout, "the message alone: not all who approved it have approved the same of its exchange")
	}
	return nil
}

func resolveApproval(ctx context.Context, c *client.Client, params api.ApprovalResolveParams) (result api.ApprovalResolveResult, err error) {
	// The daemon may ask interceptors before it answers.
	ctx, cancel := context.WithTimeout(ctx, 4*cli.AnswerTime)
	defer cancel()
	err = c.Call(ctx, "approval.resolve", params, &result)
	return result, err
}

// mayDecide returns the refusal that the daemon would give.
func (s *People) mayDecide(a *api.Approval, decision, digest string) error {
	switch {
	case decision == api.DecideDeny && describe.CanTakeBack(a):
		return nil
	case a.State != api.ApprovalPending && a.Decision != nil:
		return decidedBefore(a.ApprovalID, decision, a.State, a.Decision.By, a.Decision.At, time.Now())
	case digest != "" && digest != a.Digest:
		return s.stale(decision, a.ApprovalID, a.Changed)
	case !slices.Contains(api.DecisionsOf(a.Kind), decision):
		return fmt.Errorf("cannot %s %s: %s", describe.Verb(decision), a.ApprovalID, describe.NotOffered(a.Kind))
	case decision == api.DecideApprove && !a.Approvable:
		return fmt.Errorf("cannot approve %s: %s; %s", a.ApprovalID, describe.CannotApprove(a), describe.WordsOf(a.Kind).Instead)
	}
	return nil
}

func decidedBefore(id, decision, state, by string, at int64, now time.Time) error {
	return fmt.Errorf("cannot %s %s: it is %s already, by %s, %s", describe.Verb(decision), id, describe.State(state), by, term.When(at, now))
}

// stale shows the changes since the person looked, and returns an error.
func (s *People) stale(decision, id string, changed []api.ApprovalChange) error {
	p := &term.Page{Screen: s.Screen()}
	p.Screen.Colour.On = p.Screen.Colour.On && term.IsTerminal(s.Stderr)
	(&describe.Text{Writer: p}).Changes(changed)
	for _, line := range p.Lines {
		fmt.Fprintln(s.Stderr, line)
	}
	return fmt.Errorf("cannot %s %s: it is no longer what you saw; look again: ocipd approvals show %s", describe.Verb(decision), id, cli.Argument(id))
}

func (s *People) refusedDecision(err error, decision, id string) error {
	switch o := api.DetailsOf[api.Obstacle](err); o.Code { //nolint:exhaustive // the others have no words of their own here
	case api.ApprovalStale:
		return s.stale(decision, id, o.Changed)
	case api.AlreadyDecided:
		return decidedBefore(id, decision, o.State, o.By, o.At, time.Now())
	}
	return fmt.Errorf("cannot %s %s: %w", describe.Verb(decision), id, err)
}

// words is the person's text in place of a message.
func (s *People) words(ctx context.Context, text string) (string, error) {
	if text != "-" {
		return text, nil
	}
	read, err := s.ReadStdin(ctx)
	if err != nil {
		return "", err
	}
	if text = strings.TrimSuffix(string(read), "\n"); text == "" {
		return "", errors.New("cannot take it over with no words: stdin is empty")
	}
	return text, nil
}

// confirm shows the decision and asks for confirmation, unless the flags settle it.
func (s *People) confirm(ctx context.Context, a *api.Approval, decision, content string, exchange *api.Bounds, yes bool) error {
	if yes || !s.Interactive() {
		return nil
	}
	scr, now := s.Screen(), time.Now()
	if Sends(decision) {
		if err := writeApproval(s.Stdout, scr, a, now); err != nil {
			return err
		}
	} else {
		t := newTable(group{&a.ApprovalSummary}, api.ApprovalPending, now)
		t.rows = []group{{&a.ApprovalSummary}}
		for _, line := range t.lines(scr) {
			fmt.Fprintln(s.Stdout, line)
		}
	}
	p := &term.Page{Screen: scr}
	if content != "" {
		(&describe.Text{Writer: p}).Instead(content)
	}
	if exchange != nil {
		p.Heading("What you approve of its exchange")
		p.Fact("within", describe.Within(exchange, now))
		p.Fact("not", "another word, a higher level, acceptances, money, and what only a person may answer: they ask again")
	}
	p.Line()
	for _, line := range p.Lines {
		fmt.Fprintln(s.Stdout, line)
	}
	agreed, err := s.Ask(ctx, question(a, decision))
	if err == nil && !agreed {
		err = errors.New("nothing was decided")
	}
	return err
}

// signature is a person's signature for a decision, if one is required.
func (s *People) signature(ctx context.Context, a *api.Approval, decision, content, note string, exchange *api.Bounds, k *cli.Keys, f DecideOptions) (string, error) {
	if f.Signature != "" {
		return s.readSignature(ctx, f.Signature)
	}
	if !f.Sign && f.Key == "" && !a.SignatureRequired {
		return "", nil
	}
	text, err := a.TextToSign(decision, content, note, exchange)
	if err != nil {
		return "", err
	}
	return k.Sign(ctx, text)
}

func (s *People) readSignature(ctx context.Context, file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = s.ReadStdin(ctx)
	} else {
		text, err = cli.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the signature: %w", err)
	}
	return string(text), nil
}

// question asks for confirmation of a decision about the shown request.
func question(a *api.Approval, decision string) string {
	verb := describe.Verb(decision)
	verb = strings.ToUpper(verb[:1]) + verb[1:]
	if Sends(decision) {
		return verb + " " + cmp.Or(text.Proquints(a.Digest), term.Printable(a.Digest)) + "?"
	}
	return verb + " it?"
}

// CommandOf is a decision as a command's name.
func CommandOf(decision string) string { return strings.ReplaceAll(decision, "_", "-") }
