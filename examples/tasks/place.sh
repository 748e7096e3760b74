# What the examples of tasks share: a daemon and a runner of their own in a fresh folder, a
# token for each actor, and a task that plans a release. It is sourced, with ocipd in PATH:
# $agent is put into the configuration behind the executor's name, $reviewers behind those of
# the reviewers, and $more below tasks.
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
# A person looks at what is asked for, and approves. It takes the digest of what was looked at.
approve() {
	until id=$(ocipd approvals list --json | member approvalId) && [ -n "$id" ]; do
		kill -0 "$1" || exit 1
		sleep 0.2
	done
	ocipd approvals show "$id"
	ocipd approvals approve "$id" --yes --digest "$(ocipd approvals show "$id" --json | sed 's/.*"digest":"\([^"]*\)","salt".*/\1/')"
}

cat > "$dir/ocipd.yaml" <<END
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme}
approvals: {notify: {desktop: false}}
tasks:
  ${more:-}
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme${agent:-}}
    - {name: checker, role: spec_reviewer, tenant_id: acme${reviewers:-}}
    - {name: critic, role: quality_reviewer, tenant_id: acme${reviewers:-}}
    - {name: gate, role: lobster, tenant_id: acme}
END
command ocipd $place serve --log-level warn & daemon=$!
trap 'kill $daemon ${runner:-} 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
ocipd status --wait 20s > "$dir/status"
command ocipd $place runner 2> "$dir/runner.log" & runner=$!

# A person gives each actor a token, and says what is released, and how.
for name in lead builder checker critic gate; do
	ocipd task grant "$name" --out "$dir/$name.token"
done
printf '#!/bin/sh\ncp count.sh released.sh && echo released\n' > "$dir/work/release.sh"
chmod +x "$dir/work/release.sh"

# The orchestrator makes the task.
sed "2i workspace: $dir/work" "$tasks/spec.md" > "$dir/spec.md"
task=$(as lead task create -f "$dir/spec.md" --json | member task_id)
