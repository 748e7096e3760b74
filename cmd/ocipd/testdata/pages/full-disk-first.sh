# A bot's daemon on a disk that its configuration calls full.
. "$PAGES/a-first-agent.sh"
. "$PAGES/full-disk.sh"
