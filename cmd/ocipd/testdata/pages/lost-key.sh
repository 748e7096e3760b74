# The daemon has run on a disk with room and ended, and the key that signs its log is gone.
systemctl --user stop ocipd.service
unset -f ocipd
sed -i '/^store: /d' "$HOME/.config/openclawos/ocipd.yaml"
serves
. "$PAGES/stops.sh"
rm "$HOME/.local/state/openclawos/keys/checkpoint.key"
