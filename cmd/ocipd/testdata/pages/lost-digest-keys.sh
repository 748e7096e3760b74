# The daemon has decided about a message and ended, and the keys of digests are gone.
ocipd resume >/dev/null
ocipd send irc:4711 'Hello.' >/dev/null
. "$PAGES/stops.sh"
rm "$HOME/.local/state/openclawos/keys/digest.json"
