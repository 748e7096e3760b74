// Package config reads what the operator wants: one YAML file, the OCIPD_…
// environment over it and flags over both, merged onto defaults that serve as
// they are.
//
// [Load] either returns a configuration in which every value was checked, or
// says all that is wrong with it at once, with file, line and column. Nothing
// is guessed: an unknown key, a wrong type or a name that leads nowhere is an
// error, because a misspelt limit is a limit that does not hold.
//
// The caller injects the environment and treats a loaded [Config] as read-only:
// it is shared by every goroutine until a reload swaps in another.
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
//   - keypath: names places in trees of maps and lists, finds and compares them
//   - mask: what people, logs and records get to see of a setting's value
//   - running: says where a running daemon and its files are, for commands beside a broken
//     configuration file
//   - yamltext: explains faults of YAML files in words; puts a value into one
package config
