package archtest

// folder is one package folder and what it may do.
type folder struct {
	// imports are the folders of the layers this one may import.
	imports []string
	// clock marks a folder that may read the clock and draw fresh ids. The
	// others are handed both.
	clock bool
	// process marks a folder that owns a process: it sets the knobs of the
	// libraries it starts, and the linker sets its version strings.
	process bool
}

// layers is the layer table. A folder with Go code that has no row is a fault.
var layers = map[string]folder{
	"cmd/ocipd": {
		imports: []string{"configs", "configs/policies", "integrations", "internal/acp", "internal/api", "internal/approvalcmd", "internal/approvalsui", "internal/audit", "internal/auditcmd", "internal/backup", "internal/cli", "internal/client", "internal/config", "internal/configfile", "internal/console", "internal/daemon", "internal/demo", "internal/doctor", "internal/durable", "internal/integrate", "internal/kernelconfig", "internal/keypath", "internal/logtext", "internal/logview", "internal/mask", "internal/mcpconnect", "internal/mcpproxy", "internal/mcpserver", "internal/measure", "internal/ocip", "internal/ocip/content", "internal/place", "internal/policy", "internal/service", "internal/supervisor", "internal/task", "internal/taskapi", "internal/taskclient", "internal/taskcmd", "internal/term", "internal/text", "internal/toolgate", "internal/yamltext"},
		clock:   true, process: true,
	},
	"internal/daemon": {
		imports: []string{
			"internal/backup", "internal/kernelconfig", "internal/memory", "internal/mask", "internal/profile", "internal/running", "internal/watchdog",
			"internal/ipc", "internal/peer", "internal/kernel", "internal/registry", "internal/approval", "internal/directory", "internal/ocip", "internal/policy", "internal/audit",
			"internal/logstore", "internal/store", "internal/index", "internal/config", "internal/client", "internal/api",
			"internal/ocip/commitment", "internal/ocip/content", "internal/sshsig", "internal/mirror", "internal/checkpoints", "internal/witness",
			"internal/keyring", "internal/redact", "internal/export", "internal/supervisor", "internal/metrics", "internal/place", "internal/text",
			"internal/reload", "internal/digestkeys", "internal/metricshttp", "internal/appconfig", "internal/diskspace", "internal/retention", "internal/runner", "internal/task", "internal/taskapi", "internal/tasks", "internal/notices", "internal/logquery", "internal/storeerror", "internal/gateways",
		},
		clock: true,
	},
	"internal/client":      {imports: []string{"internal/wire", "internal/api", "internal/place"}, clock: true},
	"internal/approval":    {imports: []string{"internal/api", "internal/audit", "internal/ocip", "internal/store"}},
	"internal/exchange":    {imports: []string{"internal/audit", "internal/directory", "internal/keylock", "internal/ocip", "internal/logstore", "internal/store"}},
	"internal/pause":       {imports: []string{"internal/api", "internal/store"}},
	"internal/kernel":      {imports: []string{"internal/releases", "internal/attachments", "internal/inbox", "internal/status", "internal/keylock", "internal/sessions", "internal/grants", "internal/api", "internal/approval", "internal/audit", "internal/contacts", "internal/directory", "internal/exchange", "internal/exchanges", "internal/hints", "internal/hooks", "internal/logquery", "internal/media", "internal/metrics", "internal/ocip", "internal/outbox", "internal/pause", "internal/registry", "internal/store", "internal/storeerror", "internal/text"}},
	"internal/hints":       {imports: []string{"internal/api", "internal/ocip", "internal/text"}},
	"internal/exchanges":   {imports: []string{"internal/api", "internal/approval", "internal/audit", "internal/directory", "internal/exchange", "internal/ocip", "internal/registry", "internal/store"}},
	"internal/status":      {imports: []string{"internal/api", "internal/approval", "internal/directory", "internal/exchanges", "internal/inbox", "internal/pause", "internal/registry", "internal/store"}},
	"internal/hooks":       {imports: []string{"internal/api", "internal/approval", "internal/audit", "internal/directory", "internal/exchange", "internal/keylock", "internal/ocip", "internal/pause", "internal/registry", "internal/store", "internal/text"}},
	"internal/inbox":       {imports: []string{"internal/api", "internal/audit", "internal/contacts", "internal/directory", "internal/keylock", "internal/ocip", "internal/outbox", "internal/registry"}},
	"internal/contacts":    {imports: []string{"internal/api", "internal/audit", "internal/directory", "internal/exchange", "internal/ocip", "internal/store"}},
	"internal/logquery":    {imports: []string{"internal/api", "internal/audit", "internal/store"}},
	"internal/storeerror":  {imports: []string{"internal/api", "internal/fileintegrity", "internal/ocip", "internal/store"}},
	"internal/registry":    {imports: []string{"internal/api", "internal/audit", "internal/directory", "internal/jsonline", "internal/keylock", "internal/metrics", "internal/ocip", "internal/store", "internal/text"}},
	"internal/gateways":    {imports: []string{"internal/peer"}},
	"internal/keylock":     {},
	"internal/mcpconnect":  {},
	"internal/mcpproxy":    {imports: []string{"internal/api", "internal/client", "internal/taskapi", "internal/text"}},
	"internal/releases":    {imports: []string{"internal/api", "internal/approval", "internal/audit", "internal/keylock", "internal/store"}},
	"internal/ipc":         {imports: []string{"internal/peer", "internal/ocip", "internal/wire", "internal/api", "internal/metrics", "internal/jsonline", "internal/task"}},
	"internal/wire":        {imports: []string{"internal/api", "internal/jsonline"}},
	"internal/db":          {imports: []string{"internal/durable", "internal/walfile"}},
	"internal/logstore":    {imports: []string{"internal/audit", "internal/db"}},
	"internal/taskstore":   {imports: []string{"internal/db", "internal/store"}},
	"internal/store":       {imports: []string{"internal/db", "internal/logstore", "internal/quota", "internal/diskspace", "internal/fileintegrity", "internal/audit", "internal/ocip", "internal/metrics", "internal/jsonline"}},
	"internal/witness":     {imports: []string{"internal/audit", "internal/durable"}},
	"internal/checkpoints": {imports: []string{"internal/audit", "internal/durable"}},
	"internal/backup":      {imports: []string{"internal/audit", "internal/checkpoints", "internal/durable", "internal/keyring", "internal/logreader", "internal/store"}},
	"internal/logreader":   {imports: []string{"internal/api", "internal/audit", "internal/client", "internal/durable", "internal/logstore", "internal/mirror", "internal/store"}},
	"internal/mirror":      {imports: []string{"internal/audit", "internal/durable"}},
	"internal/index":       {imports: []string{"internal/audit"}},
	"internal/export":      {imports: []string{"internal/text", "internal/audit", "internal/durable"}},
	"internal/policy":      {imports: []string{"internal/ocip", "internal/task", "configs/policies"}},
	"internal/api":         {imports: []string{"internal/media", "internal/ocip", "internal/audit", "internal/jsonline", "internal/task"}},
	"internal/taskapi":     {imports: []string{"internal/api", "internal/task"}},
	"internal/tasks":       {imports: []string{"internal/api", "internal/approval", "internal/audit", "internal/keylock", "internal/plainfile", "internal/store", "internal/taskstore", "internal/task", "internal/taskapi", "internal/text"}},
	"internal/task":        {},
	"internal/runner":      {imports: []string{"internal/api", "internal/client", "internal/durable", "internal/peer", "internal/plainfile", "internal/task", "internal/taskapi"}},
	"internal/child":       {imports: []string{"internal/peer"}},
	"internal/plainfile":   {},

	"internal/outbox":    {imports: []string{"internal/api", "internal/audit", "internal/directory", "internal/jsonline", "internal/metrics", "internal/ocip", "internal/registry", "internal/store"}},
	"internal/directory": {imports: []string{"internal/ocip", "internal/text"}},

	"internal/ocip": {imports: []string{"internal/text", "internal/ocip/commitment", "internal/ocip/content", "internal/jsonline"}},

	"internal/ocip/commitment": {imports: []string{"internal/text"}},
	"internal/ocip/content":    {imports: []string{"internal/text"}},
	"internal/buildtest":       {},
	"internal/roundtest":       {imports: []string{"internal/ocip", "internal/api"}},
	"internal/audit":           {imports: []string{"internal/jsonline", "internal/text"}},
	"internal/jsonline":        {},
	"internal/peer":            {},
	"internal/metrics":         {},
	"internal/notify":          {imports: []string{"internal/text"}},
	"internal/text":            {},
	"internal/cli":             {imports: []string{"internal/api", "internal/client", "internal/config", "internal/term", "internal/text"}, clock: true},
	"internal/mcpserver":       {imports: []string{"internal/api", "internal/client", "internal/ocip", "internal/task", "internal/taskapi", "internal/taskclient"}},
	"internal/lobster":         {imports: []string{"internal/api", "internal/child", "internal/task", "internal/taskapi", "internal/taskclient"}},
	"internal/toolgate":        {imports: []string{"internal/api", "internal/client", "internal/taskclient"}, clock: true},
	"internal/loop":            {imports: []string{"internal/api", "internal/child", "internal/task", "internal/taskapi", "internal/taskclient", "internal/text"}},
	"internal/taskclient":      {imports: []string{"internal/api", "internal/client", "internal/task", "internal/taskapi"}},
	"internal/acp":             {imports: []string{"internal/api", "internal/peer", "internal/place", "internal/redact", "internal/task", "internal/taskapi", "internal/taskclient"}},
	"internal/taskcmd":         {imports: []string{"examples", "internal/api", "internal/audit", "internal/cli", "internal/client", "internal/config", "internal/console", "internal/durable", "internal/legacy", "internal/lobster", "internal/loop", "internal/prose", "internal/runner", "internal/task", "internal/taskapi", "internal/taskclient", "internal/term", "internal/text"}, clock: true},
	"internal/legacy":          {imports: []string{"internal/task", "internal/text"}},
	"internal/prose":           {imports: []string{"internal/task", "internal/text"}},
	"internal/auditcmd":        {imports: []string{"internal/api", "internal/audit", "internal/checkpoints", "internal/cli", "internal/client", "internal/config", "internal/durable", "internal/export", "internal/keyring", "internal/logreader", "internal/logstore", "internal/logview", "internal/store", "internal/term", "internal/verify", "internal/witness"}, clock: true},
	"internal/logview":         {imports: []string{"internal/audit", "internal/term"}},
	"internal/verify":          {imports: []string{"internal/audit", "internal/checkpoints", "internal/durable", "internal/index", "internal/keyring", "internal/logreader", "internal/mirror", "internal/store", "internal/term", "internal/witness"}},
	"internal/approvalcmd":     {imports: []string{"internal/api", "internal/approvalsui", "internal/cli", "internal/ocip", "internal/term"}},
	"internal/integrate":       {imports: []string{"integrations", "internal/api", "internal/audit", "internal/durable", "internal/peer", "internal/toolgate"}},
	"internal/configfile":      {imports: []string{"internal/config", "internal/durable", "internal/kernelconfig", "internal/keypath", "internal/yamltext"}},
	"internal/service":         {imports: []string{"internal/kernelconfig", "internal/api", "internal/cli", "internal/config", "internal/term", "systemd"}},
	"internal/doctor": {
		imports: []string{
			"internal/kernelconfig", "internal/logreader", "internal/integrate",
			"internal/api", "internal/audit", "internal/cli", "internal/client", "internal/config", "internal/daemon", "internal/keyring", "internal/mirror",
			"internal/place", "internal/policy", "internal/service", "internal/logstore", "internal/store", "internal/term", "internal/checkpoints", "systemd",
		},
		clock: true,
	},
	"internal/approvalsui":   {imports: []string{"internal/api", "internal/audit", "internal/cli", "internal/client", "internal/ocip", "internal/sshsig", "internal/term"}, clock: true},
	"internal/term":          {imports: []string{"internal/text"}},
	"internal/sshsig":        {imports: []string{"internal/durable"}},
	"internal/keyring":       {imports: []string{"internal/durable"}},
	"internal/durable":       {},
	"internal/diskspace":     {},
	"internal/quota":         {},
	"internal/fileintegrity": {},
	"internal/walfile":       {},
	"internal/place":         {},
	"internal/redact":        {imports: []string{"internal/text", "internal/audit", "internal/ocip/content"}},
	"internal/keypath":       {},
	"internal/yamltext":      {imports: []string{"internal/api", "internal/keypath"}},
	"internal/mask":          {},
	"internal/config":        {imports: []string{"internal/running", "internal/keypath", "internal/mask", "internal/yamltext", "internal/text", "internal/api", "internal/audit", "internal/keyring", "internal/redact", "internal/ocip/commitment", "internal/ocip/content"}},
	"internal/archtest":      {},
	"internal/filewatch":     {},
	"internal/media":         {imports: []string{"internal/text"}},
	"internal/supervisor":    {clock: true},
	"systemd":                {},
	"configs":                {},
	"configs/policies":       {},

	"internal/retention":  {imports: []string{"internal/api", "internal/audit", "internal/index", "internal/mirror", "internal/store", "internal/checkpoints"}},
	"internal/notices":    {imports: []string{"internal/api", "internal/config", "internal/notify"}},
	"internal/reload":     {imports: []string{"internal/api", "internal/audit", "internal/config", "internal/filewatch", "internal/keypath", "internal/policy", "internal/store", "internal/storeerror", "internal/text"}},
	"internal/digestkeys": {imports: []string{"internal/api", "internal/audit", "internal/keyring", "internal/store", "internal/storeerror"}},
	"internal/demo": {
		imports: []string{"configs/policies", "internal/api", "internal/audit", "internal/client", "internal/config", "internal/logview", "internal/ocip", "internal/term"}, clock: true,
	},
	"internal/logtext":     {imports: []string{"internal/term"}},
	"internal/console":     {imports: []string{"internal/term"}},
	"internal/metricshttp": {imports: []string{"internal/api", "internal/metrics"}},
	"internal/appconfig":   {imports: []string{"internal/keypath", "internal/api", "internal/config", "internal/registry"}},

	"examples":              {},
	"integrations":          {},
	"examples/go":           {clock: true, process: true},
	"internal/kernelconfig": {imports: []string{"internal/api", "internal/audit", "internal/config", "internal/directory", "internal/kernel", "internal/ocip", "internal/ocip/commitment", "internal/ocip/content", "internal/registry", "internal/term", "internal/text"}},

	"internal/profile": {imports: []string{"internal/api"}},

	"internal/memory": {},

	"internal/running": {},

	"internal/watchdog": {imports: []string{"internal/store"}},

	"internal/grants": {imports: []string{"internal/api", "internal/approval", "internal/audit", "internal/directory", "internal/ocip", "internal/store"}},

	"internal/attachments": {imports: []string{"internal/api", "internal/media", "internal/ocip", "internal/text"}},

	"internal/sessions": {imports: []string{"internal/api", "internal/directory", "internal/exchange", "internal/store"}},

	"bench/fault": {
		imports: []string{"internal/client", "internal/config", "internal/api", "internal/ocip", "internal/store", "internal/audit"},
		clock:   true, process: true,
	},
	"internal/measure": {imports: []string{"internal/audit", "internal/ocip", "internal/ocip/commitment", "internal/ocip/content", "internal/text"}},
	"bench/detection": {
		imports: []string{"internal/measure", "internal/ocip/commitment", "internal/ocip/content"},
		clock:   true, process: true,
	},
	"bench/soak": {
		imports: []string{"internal/client", "internal/config", "internal/api"},
		clock:   true, process: true,
	},
	"e2e": {},
	"bench": {
		imports: []string{
			"internal/client", "internal/ipc", "internal/api", "internal/ocip", "internal/ocip/commitment", "internal/ocip/content",
			"internal/logstore", "internal/store", "internal/audit", "internal/keyring", "internal/policy", "internal/config", "internal/mirror",
			"internal/task", "internal/taskstore",
		},
		clock: true, process: true,
	},
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
		folders: []string{"internal/policy"},
		why:     "policy is asked through internal/policy",
	},
	{
		paths:   []string{"database/sql", "zombiezen.com/go/sqlite", "modernc.org/sqlite"},
		folders: []string{"internal/db", "internal/logstore", "internal/store", "internal/taskstore", "internal/index", "internal/walfile", "bench"},
		why:     "the database is reached through internal/store, and bench has a bare one beside it",
	},
	{
		paths:   []string{"github.com/modelcontextprotocol"},
		folders: []string{"internal/mcpserver", "internal/mcpproxy", "internal/toolgate"},
		why:     "MCP is spoken by internal/mcpserver, internal/mcpproxy and internal/toolgate",
	},
	{
		paths:   []string{"github.com/coder/acp-go-sdk"},
		folders: []string{"internal/acp"},
		why:     "the Agent Client Protocol is spoken by internal/acp",
	},
	{
		paths:   []string{"net"},
		folders: []string{"internal/witness", "internal/ipc", "internal/peer", "internal/client", "internal/daemon", "internal/metricshttp", "internal/notify", "internal/export", "internal/mcpproxy", "internal/mcpconnect", "bench", "bench/soak", "examples/go"},
		why:     "sockets stay with the folders that serve and dial them",
	},
	{
		paths:   []string{"flag", "github.com/spf13/cobra", "github.com/spf13/pflag", "os/signal"},
		folders: []string{"cmd/ocipd", "internal/cli", "internal/approvalcmd", "internal/auditcmd", "internal/taskcmd", "bench", "bench/detection", "bench/fault", "bench/soak"},
		why:     "flags and signals belong to commands",
	},
	{
		paths: []string{"log"},
		why:   "log with a *slog.Logger that was handed in",
	},
	{
		paths:   []string{"unsafe"},
		folders: []string{"internal/walfile", "bench/fault"},
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
	"net/url":  true,
}

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
