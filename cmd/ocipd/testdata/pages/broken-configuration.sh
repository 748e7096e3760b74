echo 'policy: {watch: false}' | configuration
systemctl --user reload ocipd
echo 'polcy: {}' >>"$HOME/.config/openclawos/ocipd.yaml"
