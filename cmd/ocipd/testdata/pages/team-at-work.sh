# A team with its tokens, and a task whose spec was reviewed.
. "$PAGES/team.sh"
for name in lead builder checker critic; do ocipd task grant "$name" --out "$name.token"; done
task=$(ocipd task create -f spec.md --json --token-file lead.token | jq -r .task_id)
. "$PAGES/reviewed.sh"
