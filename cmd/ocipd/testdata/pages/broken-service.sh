# The daemon runs as a service, and its configuration has a key that there is not.
. "$PAGES/service.sh"
ocipd service install >/dev/null 2>&1
systemctl --user stop ocipd.service
echo 'polcy: {}' >>"$HOME/.config/openclawos/ocipd.yaml"
systemctl --user start ocipd.service 2>/dev/null || true
