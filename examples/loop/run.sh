#!/bin/sh
# A task that runs by itself: agents make it and review it, a person allows what they ask for
# and approves the release, and the release is run once.
# Run it with ocipd in PATH, and with Node and npm: sh examples/loop/run.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
(cd "$here/../acp" && npm ci --ignore-scripts --no-audit --no-fund)
tasks=$here/../tasks
agent=", acp: {command: [\"$(command -v node)\", \"$here/../acp/agent.mjs\"], env: [PATH]}"
reviewers=$agent
more="run: {executor: builder, spec_reviewer: checker, quality_reviewer: critic}"
. "$tasks/place.sh"

command ocipd $place task run "$task" --token-file "$dir/lead.token" --tokens "$dir" & loop=$!
approve $loop # what the executor asks for
approve $loop # the release
wait $loop
ocipd task timeline "$task"
cmp "$dir/work/count.sh" "$dir/work/released.sh"
