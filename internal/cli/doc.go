// Package cli is what a command is given of the process that it runs in: streams,
// environment, the flags that every command has, the configuration, and the way to the
// daemon.
//
// A command is called with a [Process], asks it for all of these, and returns an
// error: [ErrSaid] where it has said why already, one made by [Usagef] for a command
// line that makes no sense. Whoever made the Process turns errors into exit codes.
//
// # The folder
//
// The folder internal/cli holds the insides of the commands. Its packages may import each
// other and those of base, ocip, audit, api, store, config, ipc, approval, evidence,
// kernel, task, daemon and bridge.
//
//   - approvalcmd: the commands about approval requests and grants
//   - approvalsui: how people see and decide approval requests: live screen, text, what is
//     signed
//   - auditcmd: the commands about the audit log
//   - demo: plays `ocipd demo`: scenes on a daemon of its own, what the apps see beside
//     what the log records
//   - doctor: checks everything that a daemon needs, and words the fix
//   - logview: how records look on a terminal: rows, pages, charts
//   - measure: says how well the detectors do on texts that people have judged, and what
//     people did with what was held
//   - service: installs, removes and shows the systemd service of a user
//   - taskcmd: the commands about tasks, and the runner
package cli
