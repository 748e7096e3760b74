# The daemon beside a disk that its configuration calls full.
echo 'store: {warn_free_bytes: 1000000000000000000, min_free_bytes: 1000000000000000000}' >>"$HOME/.config/openclawos/ocipd.yaml"
serves
until ocipd audit query --event disk_low --json 2>/dev/null | grep -q disk_low; do sleep 0.1; done
