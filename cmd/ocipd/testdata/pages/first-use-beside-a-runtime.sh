# Another new account, with a program called claude on its PATH.
mkdir runtime
printf '#!/bin/sh\necho "2.1.0 (Claude Code)"\n' >runtime/claude && chmod +x runtime/claude
PATH=$PWD/runtime:$PATH
account carol 1
