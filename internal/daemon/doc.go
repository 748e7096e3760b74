// Package daemon puts the packages together: configuration, policy,
// store, kernel and sockets. It is the only package that knows them all, and holds
// nothing but their order: the steps of a start, and the same steps undone in
// reverse when a later step fails or the daemon stops.
//
// The caller loads a configuration, makes a [Daemon] and runs it.
//
// # The folder
//
// The folder internal/daemon holds the process: starts, reloads and stops all others. Its
// packages may import each other and those of base, ocip, audit, api, store, config, ipc,
// approval, evidence, kernel and task.
//
//   - appconfig: serves apps their part of the configuration: `config.get`, `config.watch`
//   - gateways: sees agent runtimes that run without the plugin that decides, or with files
//     in which their gate was changed
//   - kernelconfig: types a configuration for the kernel; says what it lacks about apps,
//     and what was seen of them
//   - memory: gives memory back to the system when a burst of messages is over
//   - metricshttp: serves metrics to Prometheus
//   - notices: words notices about approval requests, and chooses how they are sent
//   - notify: sends notifications: desktop notifications, a command
//   - profile: takes profiles of the running daemon, for operators
//   - reload: puts configurations and policies in force while the daemon runs, on record
//     first
//   - supervisor: the service manager: passed sockets, sd_notify
//   - watchdog: gives the service manager signs of life, each after a probe of a decision
package daemon
