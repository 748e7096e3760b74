# A person with a key in ssh-agent, whose decisions count.
mkdir -p "$HOME/.ssh" && ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"
eval "$(ssh-agent -s)" && ssh-add -q "$HOME/.ssh/id_ed25519"
echo "ann@acme $(cat "$HOME/.ssh/id_ed25519.pub")" >"$HOME/signers"
echo "approvals: {allowed_signers: $HOME/signers}" >>"$HOME/.config/openclawos/ocipd.yaml"
ocipd config reload
