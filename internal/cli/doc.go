// Package cli gives commands access to their process: streams, environment, the common
// flags, the configuration, and the connection to the daemon.
//
// A command gets a [Process] and returns an error: [ErrSaid] if it has already printed the
// reason, or one of [Usagef] for a wrong command line. The creator of the Process turns
// errors into exit codes.
//
// # The folder
//
// The folder internal/cli holds the insides of the commands. Its packages may import each
// other and those of base, ocip, audit, api, store, config, ipc, approval, evidence,
// kernel, task, daemon and bridge.
//
//   - approvalcmd: the commands about approval requests and grants
//   - approvalsui: how people see and decide approval requests: list, live screen, prompts,
//     signatures; the words about one request are those of internal/approval/describe
//   - auditcmd: the commands about the audit log
//   - configcmd: the commands about the configuration and the policy
//   - consolecmd: the commands of the console, the page in a browser
//   - contactcmd: the commands about the address book
//   - contentcmd: the commands that show and measure the detectors
//   - demo: plays `ocipd demo`: scenes on its own daemon, the apps' view beside the log's records
//   - doctor: checks everything that a daemon needs, and suggests fixes
//   - exchangecmd: the commands about exchanges
//   - fleetcmd: the commands about a fleet of daemons
//   - kernelcmd: the commands that show and steer a running daemon
//   - logview: shows records on a terminal: rows, pages, charts
//   - measure: measures the detectors on texts that people have judged, and people's
//     decisions about held messages
//   - runtimecmd: the commands that stand between the daemon and agents' runtimes
//   - sendcmd: the commands that send and check a message
//   - service: installs, removes and shows the systemd service of a user
//   - taskcmd: the commands about tasks, and the runner
package cli
