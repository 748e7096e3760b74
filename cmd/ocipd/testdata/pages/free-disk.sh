# The daemon on a disk with room, and a person with a key in ssh-agent, whose decisions count.
sed -i '/^store: /d' "$HOME/.config/openclawos/ocipd.yaml"
serves
. "$PAGES/signers.sh"
