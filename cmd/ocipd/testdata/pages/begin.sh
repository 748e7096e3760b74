# What every page begins with. It is sourced, like all files here, in the shell that the
# page's commands are typed into.

# A person types a line, or several, at a terminal in which a command runs.
types() {
	local lines=$1
	shift
	printf '%b' "$lines" | script -qec "$*" /dev/null | tr -d '\r' | sed 's|\[y/N\] |&\n|'
	return "${PIPESTATUS[1]}"
}

# A daemon with a configuration, in place of the one before it.
serves() {
	if [ -n "${served:-}" ]; then
		kill "$served"
		wait "$served"
	fi
	ocipd "$@" serve 2>>"$HOME/daemon.log" &
	served=$!
	ocipd "$@" status --wait 20s >/dev/null || cat "$HOME/daemon.log"
}

# The user's configuration is what stands on standard input.
configuration() {
	mkdir -p "$HOME/.config/openclawos" && cat >"$HOME/.config/openclawos/ocipd.yaml"
}

# A person approves the first request that waits, as it was read.
approves() {
	local id
	until id=$(ocipd approvals list --json | jq -r .approvalId | head -n 1) && [ -n "$id" ]; do sleep 0.1; done
	ocipd approvals approve "$id" --yes --digest "$(ocipd approvals show "$id" --json | jq -r .digest)"
} >/dev/null 2>&1
