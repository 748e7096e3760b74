// Package schema describes the protocol for programs: JSON Schemas of the types that the
// daemon decodes and encodes, one published schema of the whole protocol, and TypeScript
// declarations made from it.
//
// [Of] is the schema of one type, for kernel.describe and the tools of `ocipd mcp`.
// [Protocol] is the published one, in which each type is a definition.
package schema
