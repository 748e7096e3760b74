// Package config reads the operator's settings: one YAML file, the OCIPD_… environment over
// it and flags over both, merged onto usable defaults.
//
// [Load] either returns a configuration in which every value was checked, or reports all
// faults at once, with file, line and column. It never guesses: an unknown key, a wrong
// type or a dangling name is an error, because a misspelt limit would not be enforced.
//
// The caller injects the environment and treats a loaded [Config] as read-only: all
// goroutines share it until a reload swaps in another.
//
// Source: protocol, sections 1, 3 and 7.
//
// # The folder
//
// The folder internal/config holds what the operator wants: file, environment, flags. Its
// packages may import each other and those of base, ocip, audit and api.
//
//   - configfile: changes the files of a configuration as a whole or not at all: its own,
//     and the directory file
//   - keypath: names places in trees of maps and lists, and finds and compares values there
//   - mask: hides secrets in a setting's value from people, logs and records
//   - running: tells commands where a running daemon and its files are if the configuration
//     file is broken
//   - yamltext: explains faults of YAML files in words; inserts values
package config
