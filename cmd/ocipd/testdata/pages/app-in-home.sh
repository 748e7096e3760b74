# An app that registers, and looks for what it should not see.
configuration <<END
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme}
END
serves
mkdir alice && cat >alice/alice <<'END'
#!/bin/bash
[ "$(echo /run/* /run/ocipd/*)" = "/run/ocipd /run/ocipd/kernel.sock" ] || exit 1
echo '{"id":"1","type":"request","timestamp":1,"method":"app.register","params":{"manifest":{"id":"@acme/alice","name":"Alice","version":"1.0.0","type":"app","main":"alice","protocol":{"version":"1.0"},"capabilities":{}}}}' |
	socat -t 10 - "UNIX-CONNECT:$OPENCLAWOS_KERNEL_SOCKET" | grep -q '"appId":"@acme/alice"'
END
chmod +x alice/alice
# Some systems let no ordinary user make a name space.
bwrap --unshare-all --ro-bind / / true || bwrap() { :; }
