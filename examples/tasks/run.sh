#!/bin/sh
# A task from its spec to completed, by scripted agents: each acts by its own token, in
# processes of its own, and knows of the others only what the daemon tells it.
# Run it with ocipd in PATH: sh examples/tasks/run.sh
set -eu

tasks=$(cd "$(dirname "$0")" && pwd)
. "$tasks/place.sh"

# The executor makes what the spec asks for; its first try is wrong.
builder() {
	attempt=$(($(cat "$dir/tries" 2>/dev/null || echo 0) + 1))
	echo "$attempt" > "$dir/tries"
	unit=w
	[ "$attempt" -gt 1 ] || unit=c
	printf '#!/bin/sh\nwc -%s < "$1" | tr -d " "\n' "$unit" > "$dir/work/count.sh"
	chmod +x "$dir/work/count.sh"
	as builder task checkpoint "$task" --type progress --payload "{\"try\": $attempt}"
	as builder task artifact "$task" count.sh --summary "counts words"
	as builder task finish-attempt "$task"
}

# The reviewers look at what is there, and say what they found. They decide nothing.
checker() {
	if [ "$(phase)" = spec_review ]; then
		as checker task review "$task" --verdict approved --summary "it can be tested"
		return
	fi
	printf 'one two three\n' > "$dir/three"
	got=$("$dir/work/count.sh" "$dir/three")
	if [ "$got" = 3 ]; then
		as checker task review "$task" --verdict approved --summary "it prints 3"
	else
		as checker task review "$task" --verdict changes_requested --finding "major: it prints $got, and not 3"
	fi
}
critic() {
	sh -n "$dir/work/count.sh"
	as critic task review "$task" --verdict approved --summary "it is short, and quotes its argument"
}

# The orchestrator reads the state, has one actor work, and decides the next phase.
while :; do
	now=$(phase)
	case $now in
	spec_review) checker; move execution_ready "the spec is approved" ;;
	execution_ready)
		as lead task start-attempt "$task" --worker builder
		move executing "an attempt has begun"
		;;
	executing) builder; move spec_gate "it was delivered" ;;
	spec_gate) checker; move quality_gate "it does what the spec says" || move execution_ready "it is to be done again" ;;
	quality_gate) critic; move awaiting_approval "there is something to release" ;;
	awaiting_approval)
		as lead task request-approval --task "$task" --key release
		approve $$
		move ready_to_resume "a person has approved"
		;;
	ready_to_resume)
		as lead task effect run --task "$task" --key release
		move completed "all is done"
		;;
	completed) break ;;
	*) echo "the task is in $now" >&2 && exit 1 ;;
	esac
done
ocipd task timeline "$task"
ocipd task show "$task"
cmp "$dir/work/count.sh" "$dir/work/released.sh"
