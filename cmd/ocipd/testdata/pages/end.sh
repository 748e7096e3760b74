# What was started ends.
systemctl --user stop ocipd.service >/dev/null 2>&1
[ -z "${SSH_AGENT_PID:-}" ] || kill "$SSH_AGENT_PID"
for job in $(jobs -p); do kill "$job"; done
wait
