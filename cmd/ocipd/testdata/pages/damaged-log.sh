# The daemon has ended, and somebody has changed a record in its database.
. "$PAGES/stops.sh"
python3 - "$HOME/.local/state/openclawos/ocipd.db" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    text = file.read()
    file.seek(text.index(b'"event":"daemon_started"'))
    file.write(b'"event":"daemon_startex"')
END
