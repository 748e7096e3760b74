# The daemon ends, whether it was started here or by the page.
kill "${served:-$!}"
wait "${served:-$!}" 2>/dev/null
served=
