#!/bin/sh
# An effect of a task through a workflow in Lobster: it pauses, a person approves in the
# daemon, and the release is done once, also where the workflow is run again.
# Run it with ocipd in PATH, and with Node and npm: sh examples/lobster/run.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
(cd "$here" && npm ci --ignore-scripts --no-audit --no-fund)
tasks=$here/../tasks
. "$tasks/place.sh"

# The work is done and reviewed; what is left is the release.
as checker task review "$task" --verdict approved
move execution_ready "the spec is approved"
as lead task start-attempt "$task" --worker builder
move executing "an attempt has begun"
printf '#!/bin/sh\nwc -w < "$1" | tr -d " "\n' > "$dir/work/count.sh"
chmod +x "$dir/work/count.sh"
as builder task artifact "$task" count.sh
as builder task finish-attempt "$task"
move spec_gate "it was delivered"
as checker task review "$task" --verdict approved
move quality_gate "it does what the spec says"
as critic task review "$task" --verdict approved
move awaiting_approval "there is something to release"

# Lobster asks, and waits.
workflow() {
	command ocipd $place lobster run "$here/ocip.lobster" --task "$task" --key release --token-file "$dir/gate.token" \
		--program "$here/node_modules/@clawdbot/lobster/bin/lobster.js"
}
workflow & lobster=$!
approve $lobster
move ready_to_resume "a person has approved"
wait $lobster

# Whoever runs it again, for it was killed or out of doubt, gets the same, and nothing is done.
workflow
move completed "all is done"
ocipd task timeline "$task"
ocipd task effect list "$task"
cmp "$dir/work/count.sh" "$dir/work/released.sh"
