# The service is stopped, and its program is found.
systemctl --user stop ocipd.service
export PATH=$HOME/.local/bin:$PATH
unset -f ocipd
