# One message of alice waits for its app.
. "$PAGES/alice-serves.sh"
for id in $(ocipd queue list --json | jq -r .dispatchId); do ocipd queue drop "$id"; done
ocipd send telegram:dave 'How far are you?'
