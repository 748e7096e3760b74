kill %?systemd-socket-activate 2>/dev/null || kill $(jobs -p)
wait
ocipd service install >/dev/null
