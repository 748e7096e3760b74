# A task that waits for its release, a runner, a workflow's program, and a person.
. "$PAGES/team-at-work.sh"
echo invoices >work/out.txt
printf '#!/bin/sh\nexec "$TEST_BINARY" lobster takes "$@"\n' >.bin/lobster && chmod +x .bin/lobster
specified "initial_phase: spec_review
effects:
  - {idempotency_key: release, side_effect_kind: deployment, requested_action: Release, command: {argv: [/bin/sh, -c, 'echo released']}}
" >release.md
task=$(ocipd task create -f release.md --json --token-file lead.token | jq -r .task_id)
ocipd task review "$task" --verdict approved --summary good --token-file checker.token && move execution_ready approved &&
	ocipd task start-attempt "$task" --worker builder --token-file lead.token && move executing begun &&
	ocipd task artifact "$task" out.txt --summary out --token-file builder.token && ocipd task finish-attempt "$task" --token-file builder.token &&
	move spec_gate delivered && ocipd task review "$task" --verdict approved --summary good --token-file checker.token &&
	move quality_gate good && ocipd task review "$task" --verdict approved --summary good --token-file critic.token &&
	move awaiting_approval 'it is to be released'
ocipd runner 2>>runner.log &
export LOBSTER_STATE_DIR=$HOME/lobster
{ approves && move ready_to_resume 'a person has approved'; } &
