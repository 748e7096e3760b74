# The examples are not beside the SDKs here, as they are in the repository.
export PYTHONPATH=$PAGES/../../../../sdk/python
approves() {
	local id
	until [ -S run/operator.sock ] && id=$(command ocipd approvals list --json 2>/dev/null | jq -r .approvalId | head -n 1) && [ -n "$id" ]; do sleep 0.1; done
	command ocipd approvals approve "$id" --yes --digest "$(command ocipd approvals show "$id" --json | jq -r .digest)" >/dev/null
}
# With the variables of the page.
(export OPENCLAWOS_KERNEL_SOCKET=$PWD/run/kernel.sock XDG_STATE_HOME=$PWD/state; approves) &
