cp -r "$PAGES/../../../../examples" .
