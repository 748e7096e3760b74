cp "$PAGES/../../../../examples/shell/app.sh" .
