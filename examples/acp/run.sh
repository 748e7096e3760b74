#!/bin/sh
# An agent that speaks the Agent Client Protocol makes an attempt at a task: what it asks for
# a person allows, and what it made is recorded.
# Run it with ocipd in PATH, and with Node and npm: sh examples/acp/run.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
(cd "$here" && npm ci --ignore-scripts --no-audit --no-fund)
tasks=$here/../tasks
agent=", acp: {command: [\"$(command -v node)\", \"$here/agent.mjs\"], env: [PATH]}"
. "$tasks/place.sh"

as checker task review "$task" --verdict approved
move execution_ready "the spec is approved"
as lead task start-attempt "$task" --runtime acp --worker builder
move executing "an attempt has begun"
ocipd task grant builder --task "$task" --out "$dir/attempt.token"

command ocipd $place acp run --token-file "$dir/attempt.token" & bridge=$!
approve $bridge
wait $bridge
ocipd task show "$task"
ocipd task timeline "$task"
