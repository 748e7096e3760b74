cp -r "$PAGES/../../../../systemd" .
