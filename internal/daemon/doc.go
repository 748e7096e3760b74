// Package daemon puts the packages together: configuration, policy, store, kernel and sockets.
// It is the only package that knows them all. It contains only their order: the steps of a
// start, and the same steps undone in reverse when a later step fails or the daemon stops.
//
// The caller loads a configuration, makes a [Daemon] and runs it.
//
// # The folder
//
// The folder internal/daemon holds the process: it starts, reloads and stops all others.
// Its packages may import each other and those of base, ocip, audit, api, store, config,
// ipc, approval, evidence, kernel and task.
//
//   - appconfig: serves apps their part of the configuration: `config.get`, `config.watch`
//   - kernelconfig: types a configuration for the kernel; finds missing lines about apps,
//     and evidence of the apps' use
//   - memory: returns memory to the system after a burst of messages
//   - metricshttp: serves metrics to Prometheus
//   - notices: words notices about approval requests, and chooses how to send them
//   - notices/notify: sends notifications: desktop notifications, a command
//   - pprof: takes profiles of the running daemon, for operators
//   - reload: puts configurations and policies in force while the daemon runs, on record
//     first
//   - runtimewatch: notices agent runtimes that run without their plugin, or with changed files
//     of their gate
//   - supervisor: the service manager: passed sockets, sd_notify
//   - watchdog: sends the service manager signs of life, each after a probe of a decision
package daemon
