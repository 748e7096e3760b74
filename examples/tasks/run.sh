#!/bin/sh
# A task from its spec to completed, by scripted agents: each acts by its own token, in
# processes of its own, and knows of the others only what the daemon tells it.
# Run it with ocipd in PATH: sh examples/tasks/run.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
mkdir "$dir/work"
export XDG_STATE_HOME="$dir/state" XDG_RUNTIME_DIR="$dir"
# What goes on in the background is no function, so that $! is the program and not a shell.
place="--config $dir/ocipd.yaml --socket $dir/run/kernel.sock"
ocipd() { command ocipd $place "$@"; }
# "as NAME task …" is a command of that actor's.
as() { name=$1; shift; ocipd "$@" --token-file "$dir/$name.token"; }
member() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }
phase() { ocipd task show "$task" --json | member phase; }
move() { as lead task transition "$task" "$1" --reason "$2"; }

cat > "$dir/ocipd.yaml" <<EOF
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme}
approvals: {notify: {desktop: false}}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
EOF
command ocipd $place serve --log-level warn & daemon=$!
trap 'kill $daemon ${runner:-} 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
ocipd status --wait 20s > "$dir/status"
command ocipd $place runner 2> "$dir/runner.log" & runner=$!

# A person gives each actor a token, and says what is released, and how.
for name in lead builder checker critic; do
	ocipd task grant "$name" --out "$dir/$name.token"
done
printf '#!/bin/sh\ncp count.sh released.sh && echo released\n' > "$dir/work/release.sh"
chmod +x "$dir/work/release.sh"

# The orchestrator makes the task.
sed "2i workspace: $dir/work" "$here/spec.md" > "$dir/spec.md"
task=$(as lead task create -f "$dir/spec.md" --json | member task_id)

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
		approval=$(as lead task request-approval --task "$task" --key release --json | member approval_id)
		# A person looks at it, and approves. It takes the digest of what was looked at.
		ocipd approvals show "$approval"
		ocipd approvals approve "$approval" --yes --digest "$(ocipd approvals show "$approval" --json | member digest)"
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
