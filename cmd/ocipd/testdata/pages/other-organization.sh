# Another organization's witness, which has the key of the log.
ocipd audit key show >log.pub
ocipd audit witness serve --dir witness --name other.example --listen "unix:$PWD/witness.sock" --log log.pub >witness.key &
until [ -s witness.key ] && [ -S witness.sock ]; do sleep 0.1; done
