package archtest

import (
	"slices"
	"strings"
	"testing"
)

// hashes lists who makes a digest without a tenant's key, and of what. The digest of somebody's
// text is no such one where it gets into a record: whoever has the log could find the text by
// trying likely ones. It is made with [keyring.Digests], under a label, or has a salt. What does
// get into records is marked, and listed in docs/for-auditors/digests.md (Digests without a key).
var hashes = map[string]string{
	"internal/api":                "on record: what people sign, in signedText: salted words, parameters after a nonce, and a note, which stands beside it",
	"internal/approval":           "on record: salted digests of requests. Without a salt it names what is asked for, in a row that is dropped with its text",
	"internal/audit":              "on record: the chain and the tree of records",
	"internal/evidence/casefile":  "files of a case, compared with what is in the folder",
	"internal/config":             "on record: files of the operator's; which file was loaded",
	"internal/evidence/configlog": "on record: the configuration as it stands in records, and lines of it that are cut",
	"internal/daemon":             "on record: the program of the daemon, and the file of allowed signers",
	"internal/store/db":           "on record: 16 digits that name a row by its primary key; seals",
	"internal/kernel/exchanges":   "on record: the state of an exchange, of ids and times, which people sign",
	"internal/evidence/export":    "the line of a record",
	"internal/bridge/console":     "tokens and links, which are random, in memory",
	"internal/cli/consolecmd":     "on record: the file of allowed signers with a new line",
	"internal/base/filewatch":     "files of the operator's, in memory",
	"internal/audit/fold":         "on record: the open rows of tables, of what other records say of them",
	"internal/kernel/inbox":       "the key of cursors",
	"internal/bridge/integrate":   "files of other programs",
	"internal/evidence/keyring":   "the keyed digests themselves, and ids of their keys",
	"internal/bridge/a2aproxy":    "messages, requests, keys and cards of the A2A protocol, in memory",
	"internal/bridge/mcpproxy":    "lines and tokens of an MCP server, in memory",
	"internal/bridge/mcpserver":   "keys of requests",
	"internal/ocip/media":         "files that are weighed, in memory",
	"internal/evidence/mirror":    "segments of the mirror",
	"internal/ocip":               "on record: the end of the name of a member, if it is too long; a detection is in it",
	"internal/base/plainfile":     "files that a command was given, compared with what was approved",
	"internal/ocip/policy":        "on record: the text of the policy",
	"internal/kernel/registry":    "tokens, which are random, in memory and in rows",
	"internal/store/rowseal":      "the id of the key of rows",
	"internal/bridge/runner":      "files of a command and its output. The daemon keys them before they are on record",
	"internal/base/sshsig":        "signatures",
	"internal/fleet/frame":        "the header of a frame, which binds its body to it",
	"internal/fleet/roster":       "the file of a roster",
	"internal/task":               "on record: salted digests of requests to start an effect",
	"internal/task/ledger":        "seals of the files of runs",
	"internal/task/taskservice":   "files of a workspace, keys of requests and tokens. What is on record of files is keyed",
	"internal/evidence/witness":   "the origin of a log",
	"test/witnesstest":            "the id of a witness's key",
	"test/passkeytest":            "signatures",
}

// digests are the functions that make a plain digest of what they are given.
var digests = map[string][]string{
	"task.Digest":     {"internal/bridge/acp", "internal/task/taskservice"},
	"approval.Digest": {"internal/kernel"},
	"approval.Asked":  {"internal/kernel/exchanges", "internal/kernel/hooks", "internal/kernel", "internal/approval/releases", "internal/task/taskservice"},
}

// TestHashes holds the module against both lists.
func TestHashes(t *testing.T) {
	unused := map[string]bool{}
	for dir := range hashes {
		unused[dir] = true
	}
	calls := map[string][]string{}
	for _, u := range load(t) {
		if strings.HasPrefix(u.dir, "bench") {
			continue // it makes no records
		}
		for _, f := range u.files {
			for _, i := range f.Imports {
				if i.Path.Value != `"crypto/sha256"` {
					continue
				}
				if hashes[u.dir] == "" {
					t.Errorf("%s: %s makes digests without a tenant's key: none of somebody's text may get into a record", u.fset.Position(i.Pos()), u.dir)
				}
				delete(unused, u.dir)
			}
			for _, used := range selected(f) {
				if digests[used.name] == nil {
					continue
				}
				if !slices.Contains(digests[used.name], u.dir) {
					t.Errorf("%s: %s may not use %s, which %v may", u.fset.Position(used.at.Pos()), u.dir, used.name, digests[used.name])
				}
				calls[used.name] = append(calls[used.name], u.dir)
			}
		}
	}
	for dir := range unused {
		t.Errorf("%s makes no digests: take it off the list", dir)
	}
	for name, folders := range digests {
		for _, dir := range folders {
			if !slices.Contains(calls[name], dir) {
				t.Errorf("%s does not use %s: take it off the list", dir, name)
			}
		}
	}
}
