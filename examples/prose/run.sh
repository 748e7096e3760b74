#!/bin/sh
# The protocol as a program that a model runs: it is checked, and each role gets a server of
# its own, whose tools are the only ones that the role has. The model is yours.
# Run it with ocipd in PATH: sh examples/prose/run.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tasks=$here/../tasks
. "$tasks/place.sh"

for program in ocip-protocol.prose.md ocip-protocol.prose; do
	ocipd prose check "$here/$program" && echo "$program holds to the protocol"
done
# What a client of MCP says first, and what each role may call.
for name in lead builder checker critic gate; do
	printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"example","version":"1"}}}' \
		'{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/list"}' > "$dir/asks"
	{ cat "$dir/asks"; sleep 1; } | as "$name" mcp > "$dir/answers"
	echo "$name: $(grep -o '"name":"task_[a-z_]*"' "$dir/answers" | cut -d '"' -f 4 | tr '\n' ' ')"
done
echo "A session of each role takes its own: claude mcp add ocipd -- ocipd mcp --token-file NAME.token"
