cp -r "$PAGES/../../../../examples" "$PAGES/../../../../sdk" .
