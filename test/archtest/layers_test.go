package archtest

import "path"

// folder is one folder of packages and what they may import.
type folder struct {
	// floor says how high it stands. Its packages may import those of lower floors and
	// their own neighbours in the folder, and no package beside them.
	floor int
	// never are folders of lower floors that its packages do not import either.
	never []string
}

// folders are those of the module. Go code that is in none of them is a fault.
var folders = map[string]folder{
	"cmd/ocipd": {floor: 10, never: []string{"internal/store", "internal/kernel", "internal/ipc"}},

	"internal/cli":      {floor: 9},
	"internal/daemon":   {floor: 8},
	"internal/bridge":   {floor: 8, never: []string{"internal/store", "internal/kernel"}},
	"internal/kernel":   {floor: 7, never: []string{"internal/ipc"}},
	"internal/task":     {floor: 7, never: []string{"internal/ipc"}},
	"internal/approval": {floor: 6},
	"internal/evidence": {floor: 6},
	"internal/store":    {floor: 5},
	"internal/config":   {floor: 5},
	"internal/ipc":      {floor: 5},
	// The client that programs of others import.
	"client":         {floor: 5},
	"internal/api":   {floor: 4},
	"internal/audit": {floor: 3},
	"internal/ocip":  {floor: 2},
	"internal/fleet": {floor: 2},
	"internal/base":  {floor: 1},

	// What the program hands out, and the code that embeds it.
	"configs":      {},
	"docs":         {},
	"examples":     {},
	"integrations": {},
	"systemd":      {},

	// Programs and tests about all of it.
	"bench":       {floor: 11},
	"e2e":         {floor: 11},
	"examples/go": {floor: 11},
	"sdk":         {floor: 11},
	"test":        {floor: 11},
}

// followers are the packages that keep something up with the log. Of the module they import each
// other and the folders of followed: none that decides, so that they could run in another process.
var (
	followers = []string{
		"internal/evidence/checkpoints", "internal/evidence/export", "internal/evidence/follow", "internal/evidence/index",
		"internal/evidence/mirror", "internal/evidence/witness",
	}
	followed = []string{"internal/audit", "internal/base"}
)

// clocks are the packages that may read the clock and draw fresh ids: those that own a
// process or a connection. All others are handed both.
var clocks = []string{
	"bench", "bench/detection", "bench/fault", "bench/soak", "client", "cmd/ocipd", "examples/go", "internal/api/client", "internal/bridge/hook", "internal/bridge/toolgate",
	"internal/cli", "internal/cli/approvalsui", "internal/cli/auditcmd", "internal/cli/configcmd", "internal/cli/consolecmd", "internal/cli/contactcmd", "internal/cli/contentcmd", "internal/cli/exchangecmd", "internal/cli/kernelcmd", "internal/cli/runtimecmd", "internal/cli/sendcmd", "internal/cli/demo", "internal/cli/doctor", "internal/cli/taskcmd",
	"internal/daemon", "internal/daemon/supervisor", "test/witnesstest",
}

// processes are the packages that own a process: they set the knobs of the libraries they
// start, and the linker sets their version strings.
var processes = []string{"bench", "bench/detection", "bench/fault", "bench/soak", "cmd/ocipd", "examples/go", "test/report"}

// folderOf returns the folder that a package is in, "" if it is in none.
func folderOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := folders[dir]; ok {
			return dir
		}
	}
	return ""
}

// fence keeps some imports in a few folders.
type fence struct {
	// paths are import paths; each stands for itself and all below it.
	paths []string
	// folders are the folders that may import them; none means nobody.
	folders []string
	why     string
}

var fences = []fence{
	{
		paths:   []string{"github.com/open-policy-agent"},
		folders: []string{"internal/ocip/policy"},
		why:     "policy is asked through internal/ocip/policy",
	},
	{
		paths:   []string{"database/sql", "zombiezen.com/go/sqlite", "modernc.org/sqlite"},
		folders: []string{"internal/store/db", "internal/store/logstore", "internal/store", "internal/task/taskstore", "internal/store/rowseal", "internal/store/foldrows", "internal/evidence/index", "internal/store/walfile", "bench"},
		why:     "the database is reached through internal/store, and bench has a bare one beside it",
	},
	{
		paths:   []string{"github.com/modelcontextprotocol"},
		folders: []string{"internal/bridge/mcpserver", "internal/bridge/mcpproxy", "internal/bridge/toolgate"},
		why:     "MCP is spoken by internal/bridge/mcpserver, internal/bridge/mcpproxy and internal/bridge/toolgate",
	},
	{
		paths:   []string{"github.com/coder/acp-go-sdk"},
		folders: []string{"internal/bridge/acp"},
		why:     "the Agent Client Protocol is spoken by internal/bridge/acp",
	},
	{
		paths:   []string{"github.com/nats-io/nats.go", "github.com/nats-io/nkeys"},
		folders: []string{"internal/bridge/natsline"},
		why:     "brokers are spoken to by internal/bridge/natsline",
	},
	{
		paths: []string{"github.com/nats-io/nats-server"},
		why:   "a broker is a program beside this one",
	},
	{
		paths:   []string{"net"},
		folders: []string{"internal/evidence/witness", "test/witnesstest", "test/brokertest", "internal/ipc", "internal/base/peer", "internal/api/client", "internal/daemon", "internal/daemon/metricshttp", "internal/daemon/notices/notify", "internal/evidence/export", "internal/bridge/a2aproxy", "internal/bridge/mcpproxy", "internal/bridge/mcpprobe", "internal/bridge/mcpconnect", "internal/bridge/codexprobe", "internal/bridge/console", "internal/bridge/hook", "internal/bridge/judge", "bench", "bench/soak", "examples/go"},
		why:     "sockets stay with the folders that serve and dial them",
	},
	{
		paths:   []string{"flag", "github.com/spf13/cobra", "github.com/spf13/pflag", "os/signal"},
		folders: []string{"cmd/ocipd", "internal/cli", "internal/cli/approvalcmd", "internal/cli/auditcmd", "internal/cli/configcmd", "internal/cli/consolecmd", "internal/cli/contactcmd", "internal/cli/contentcmd", "internal/cli/exchangecmd", "internal/cli/fleetcmd", "internal/cli/kernelcmd", "internal/cli/runtimecmd", "internal/cli/sendcmd", "internal/cli/taskcmd", "bench", "bench/detection", "bench/fault", "bench/soak"},
		why:     "flags and signals belong to commands",
	},
	{
		paths: []string{"log"},
		why:   "log with a *slog.Logger that was handed in",
	},
	{
		paths:   []string{"unsafe"},
		folders: []string{"internal/store/walfile", "bench/fault"},
		why:     "memory is the compiler's and the runtime's, but for the functions of SQLite, and for ptrace in bench/fault",
	},
	{
		paths: []string{"C"},
		why:   "the binary is static",
	},
}

// unfenced are packages below a fenced path that are not meant by it.
var unfenced = map[string]bool{
	"log/slog": true,
	"net/mail": true,
	"net/url":  true,
}

// namedFiles are the folders of commands, whose files a person names: they are read with a
// bound, by cli.ReadFile or durable.ReadUpTo.
var namedFiles = []string{"cmd/ocipd", "internal/cli", "internal/cli/approvalcmd", "internal/cli/approvalsui", "internal/cli/auditcmd", "internal/cli/configcmd", "internal/cli/consolecmd", "internal/cli/contactcmd", "internal/cli/contentcmd", "internal/cli/exchangecmd", "internal/cli/kernelcmd", "internal/cli/runtimecmd", "internal/cli/sendcmd", "internal/cli/taskcmd", "internal/bridge/toolmap"}

// clockReads are the functions that read the clock or draw a fresh id, and
// processEnds those that end the process. Keys are import path and name.
var (
	clockReads = map[string]bool{
		"time.Now":                              true,
		"time.Since":                            true,
		"time.Until":                            true,
		"github.com/google/uuid.New":            true,
		"github.com/google/uuid.NewString":      true,
		"github.com/google/uuid.NewRandom":      true,
		"github.com/google/uuid.NewUUID":        true,
		"github.com/google/uuid.NewV6":          true,
		"github.com/google/uuid.NewV7":          true,
		"github.com/google/uuid.NewDCEGroup":    true,
		"github.com/google/uuid.NewDCEPerson":   true,
		"github.com/google/uuid.NewDCESecurity": true,
	}
	processEnds = map[string]bool{
		"os.Exit":      true,
		"syscall.Exit": true,
	}
)

// constantCalls are the calls a package-level variable may be initialised
// with: what they return is never changed afterwards, or changes unseen.
var constantCalls = map[string]bool{
	"errors.New":               true,
	"fmt.Errorf":               true,
	"regexp.MustCompile":       true,
	"regexp.MustCompilePOSIX":  true,
	"strings.NewReplacer":      true,
	"encoding/json.RawMessage": true,
	"reflect.TypeFor":          true,
	"reflect.TypeOf":           true,
	"sync.OnceValue":           true,
	"sync.OnceValues":          true,
	"text/template.Must":       true,
	"github.com/go-json-experiment/json/jsontext.Value": true,
	"github.com/go-json-experiment/json.JoinOptions":    true,
}

// stateful are import paths whose types hold state by design: a package-level
// variable that contains one is mutable, however it is written down.
var stateful = map[string]bool{
	"sync":        true,
	"sync/atomic": true,
}

// changers are functions that change their first argument.
var changers = map[string]bool{
	"slices.Sort":           true,
	"slices.SortFunc":       true,
	"slices.SortStableFunc": true,
	"slices.Reverse":        true,
	"slices.Delete":         true,
	"slices.DeleteFunc":     true,
	"slices.Compact":        true,
	"slices.CompactFunc":    true,
	"slices.Insert":         true,
	"slices.Replace":        true,
	"maps.Copy":             true,
	"maps.Insert":           true,
	"maps.DeleteFunc":       true,
	"sort.Slice":            true,
	"sort.SliceStable":      true,
	"sort.Sort":             true,
	"sort.Stable":           true,
	"sort.Strings":          true,
	"sort.Ints":             true,
}
