# The daemon has ended, and its database is gone.
. "$PAGES/stops.sh"
rm "$HOME"/.local/state/openclawos/ocipd.db*
