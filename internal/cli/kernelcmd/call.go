package kernelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/sendcmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

// callApp is the default app for calls.
const callApp = "@ocipd/call"

type callFlags struct {
	app      string
	manifest string
	kernel   bool
	operator bool
	key      string
	token    string
	list     bool
}

// NewCall returns the command that calls a method.
func NewCall(p *cli.Process) *cobra.Command {
	s := &command{p}
	var f callFlags
	c := &cobra.Command{
		Use:   "call METHOD [JSON | -] | --list",
		Short: "send one request to the daemon and print the answer",
		Long: "Make one request and print its result as one line of JSON; a streaming method prints one\n" +
			"line a chunk until it ends or is interrupted. Params are JSON, or - for stdin.\n\n" +
			"Methods that begin with " + strings.Join(operatorMethods(), ", ") + "\n" +
			"go to the operator socket, all others to the kernel socket, unless --operator or --kernel is\n" +
			"given. On the kernel socket an app is registered for the one call (" + callApp + ", or --app),\n" +
			"except for app.register and kernel.describe, which lists the methods of either socket. With\n" +
			"--token-file no app is registered: the call is that of the agent or actor whose grant it is.\n\n" +
			"--list prints the methods, who may call each, and how long each may take.\n\n" +
			"An error of the daemon is printed on stderr as JSON.",
		Example: "  ocipd call --list\n" +
			"  ocipd call kernel.describe\n" +
			"  ocipd call session.list '{\"limit\":10}'\n" +
			"  ocipd call --app @acme/alice-runtime message.dispatch - <message.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.RangeArgs(1, 2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return s.listMethods(cmd.Context())
			}
			if f.kernel && f.operator {
				return cli.Usagef("cannot use --kernel and --operator together")
			}
			if f.token != "" && (f.operator || f.app != "" || f.manifest != "") {
				return cli.Usagef("cannot use --token-file together with --operator, --app or --manifest: a grant speaks for an agent or an actor, on the kernel socket")
			}
			if args[0] == "runner.attach" {
				return cli.Usagef("cannot call runner.attach: it tells the key of the runner's ledger, which only `ocipd runner` takes and keeps to itself")
			}
			if needsToken(args[0]) && f.token == "" {
				return cli.Usagef("cannot call %s without a grant's token: name its file with --token-file", args[0])
			}
			params := ""
			if len(args) == 2 {
				params = args[1]
			}
			return s.call(cmd.Context(), args[0], params, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.app, "app", "", "register as the app with this `ID` (default "+callApp+")")
	flags.StringVar(&f.manifest, "manifest", "", "register with the manifest in this `FILE`, or this JSON; what it leaves out is filled in")
	cli.KeyFlag(c, &f.key)
	flags.BoolVar(&f.kernel, "kernel", false, "use the kernel socket")
	flags.BoolVar(&f.list, "list", false, "print the methods there are")
	flags.BoolVar(&f.operator, "operator", false, "use the operator socket")
	flags.StringVar(&f.token, "token-file", "", "act by the grant whose token stands in `FILE`")
	return c
}

// onOperator chooses the socket for a method by a fixed rule. Some methods, such as
// exchange.get, are on both sockets; to call them as an app, use the flag.
func onOperator(method string, f callFlags) bool {
	if f.kernel || f.operator {
		return f.operator
	}
	if f.app != "" || f.manifest != "" || f.token != "" || method == "task.attach" {
		return false
	}
	return slices.ContainsFunc(operatorMethods(), func(prefix string) bool { return strings.HasPrefix(method, prefix) })
}

// needsToken reports whether a method is called by the holder of a grant alone: those of an agent that
// speaks by a grant. Two older ones are an app's.
func needsToken(method string) bool {
	return strings.HasPrefix(method, "agent.") && method != "agent.queue" && method != "agent.complete"
}

// operatorMethods are prefixes of methods that operators may call.
func operatorMethods() []string {
	return []string{"approval.", "audit.", "backup.", "config.diff", "contact.", "debug.", "exchange.", "fleet.", "grant.", "kernel.", "operator.", "policy.", "queue.", "runner.", "sending.", "store.", "task."}
}

func (s *command) call(ctx context.Context, method, text string, f callFlags) error {
	params, err := s.params(ctx, text)
	if err != nil {
		return err
	}
	path, err := s.KernelSocket()
	if err != nil {
		return err
	}
	operator := onOperator(method, f)
	if operator {
		path = config.OperatorPath(path)
	}
	c, err := client.Dial(ctx, path, client.WithDropEvents())
	if err != nil {
		return err
	}
	defer c.Close()
	if !operator && method != "app.register" && method != "kernel.describe" {
		if err := s.introduceForCall(ctx, c, f); err != nil {
			return s.Refused(err)
		}
	}
	if operator {
		signature, err := s.SignCall(ctx, c, f.key, method, params)
		if err != nil {
			return s.callFailed(err)
		}
		if signature != "" {
			var answer jsontext.Value
			if err := c.CallSigned(ctx, method, params, signature, &answer); err != nil {
				return s.callFailed(err)
			}
			if _, err := s.Stdout.Write(s.Screen().JSONLine(answer)); err != nil {
				return err
			}
			return answered(answer)
		}
	}
	answers, err := c.Stream(ctx, method, params)
	if err != nil {
		return s.callFailed(err)
	}
	scr := s.Screen()
	var last jsontext.Value
	for {
		answer, err := answers.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return answered(last)
		case err != nil:
			return s.callFailed(err)
		}
		if _, err := s.Stdout.Write(scr.JSONLine(answer)); err != nil {
			return err
		}
		last = answer
	}
}

// callFailed prints an error of the daemon. A verdict about a message becomes a
// [cli.Verdict].
func (s *command) callFailed(err error) error {
	refused, ok := errors.AsType[*api.Error](err)
	if err = s.Refused(err); err != nil && ok && !sendcmd.Undecided(refused) {
		return &cli.Verdict{Code: cli.ExitRefused}
	}
	return err
}

// answered returns a [cli.Verdict] if a result says that a message must not be sent, or
// not yet. A message that the daemon has accepted counts as done, even if it is held.
func answered(result jsontext.Value) error {
	var message struct {
		Allowed *bool       `json:"allowed"`
		Held    bool        `json:"held"`
		Result  ocip.Result `json:"result"`
	}
	switch _ = json.Unmarshal(result, &message); {
	case message.Allowed != nil && !*message.Allowed && message.Held, message.Result == ocip.RequireApproval:
		return &cli.Verdict{Code: cli.ExitHeld}
	case message.Allowed != nil && !*message.Allowed, message.Result == ocip.Deny:
		return &cli.Verdict{Code: cli.ExitRefused}
	}
	return nil
}

// listMethods prints the methods of both sockets.
func (s *command) listMethods(ctx context.Context) error {
	var list api.MethodList
	if err := s.Operate(ctx, "kernel.methods", nil, &list); err != nil {
		return fmt.Errorf("cannot list the methods: %w", err)
	}
	callers := map[string]string{"open": "any app, registered or not", "app": "an app with its token", "operator": "an operator", "any": "an app or an operator"}
	paces := map[string]string{"quick": "at once", "patient": "may wait", "streaming": "until it is cancelled"}
	t := &term.Table{Columns: []term.Column{{Title: "METHOD", Whole: true}, {Title: "CALLED BY", Least: 12}, {Title: "ANSWERED", Least: 8}}}
	for _, m := range list.Methods {
		t.Add(term.Plain(m.Name), term.Plain(cmp.Or(callers[m.Access], m.Access)), term.Plain(cmp.Or(paces[m.Pace], m.Pace)))
	}
	return t.Write(s.Stdout, s.Screen())
}

// params reads a request's parameters from the command line or stdin.
func (s *command) params(ctx context.Context, text string) (jsontext.Value, error) {
	if text == "-" {
		read, err := s.ReadStdin(ctx)
		if err != nil {
			return nil, err
		}
		text = string(read)
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	params := jsontext.Value(text)
	if err := params.Compact(); err != nil {
		return nil, cli.Usagef("cannot read the params: not JSON: %v", err)
	}
	return params, nil
}

// introduceForCall attaches the connection to the call's grant or registers its app.
func (s *command) introduceForCall(ctx context.Context, c *client.Client, f callFlags) error {
	if f.token != "" {
		token, err := s.Token(f.token)
		if err != nil {
			return err
		}
		return c.Call(ctx, "task.attach", &taskapi.AttachParams{Token: token}, nil)
	}
	m := api.Manifest{
		ID: cmp.Or(f.app, callApp), Name: "ocipd call", Version: "1.0.0", Type: "app", Main: "ocipd",
		Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
	}
	if f.manifest != "" {
		text := []byte(f.manifest)
		if !strings.HasPrefix(strings.TrimSpace(f.manifest), "{") {
			var err error
			if text, err = cli.ReadFile(f.manifest); err != nil {
				return fmt.Errorf("cannot read the manifest: %w", err)
			}
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return cli.Usagef("cannot read the manifest: %v", err)
		}
		if f.app != "" {
			m.ID = f.app
		}
	}
	_, err := c.Register(ctx, &m)
	var taken *api.Error
	if errors.As(err, &taken) && taken.Code == api.Conflict && m.ID == callApp {
		// Another call uses the id.
		m.ID = fmt.Sprintf("%s-%d", callApp, os.Getpid())
		_, err = c.Register(ctx, &m)
	}
	return err
}
