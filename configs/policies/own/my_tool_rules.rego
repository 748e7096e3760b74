# Rules of your own about tool calls, beside tool.rego, which describes input. Each denial
# refuses, and each question asks a person; its text is the reason that people read. These
# are examples: change them, and their tests in my_tool_rules_test.rego.
#
# A list of what is denied stops what an agent does by mistake. One that means to go around
# it finds other words: "c''url", a script, another program. What holds is a list of what is
# allowed without a question, as quiet is here, and the runtime's own sandbox.
package ocip.tool

# Programs that no shell command of an agent names.
denied_programs := {"curl", "wget", "nc", "ncat", "ssh", "scp", "sudo", "crontab"}

denials contains sprintf("a shell command names %s", [word]) if {
	some word in regex.split(`[^A-Za-z0-9_.+-]+`, input.tool.command)
	word in denied_programs
}

# Nothing outside of what version control brings back is deleted.
denials contains "rm deletes recursively" if regex.match(`(^|[^A-Za-z0-9_-])rm\s+(\S+\s+)*-[A-Za-z-]*[rR]`, input.tool.command)

# A person looks at every other command that is not quiet.
questions contains "a person looks at this shell command" if {
	input.tool.command != ""
	not quiet
}

# Codex asks about the command that opens a shell, and about nothing that is typed into it
# afterwards: whoever approves it approves all of that.
questions contains "it opens a program that reads commands; what is typed into it is asked about no more" if {
	regex.match(`^(\S*/)?((ba|da|z|fi|k|c|tc)?sh|python[0-9.]*|node|irb|perl|psql|mysql|sqlite3|gdb|tmux|screen)( -[A-Za-z-]+)*\s*$`, input.tool.command)
}

# One plain command of words about what is below the folder: no quotes, variables, pipes,
# lists, redirections, new lines, nor options that write a file or start a program. On a
# terminal git log, diff and show start a pager, which takes commands.
quiet if {
	regex.match(`^(ls|pwd|cat|head|tail|wc|grep|git status|git --no-pager (diff|log|show))( [A-Za-z0-9_.-][A-Za-z0-9_./:-]*)*$`, input.tool.command)
	not regex.match(`\.\.|--(output|ext-diff|textconv)`, input.tool.command)
}

# Options of git add open an editor (-e) or ask on the terminal (-i, -p).
quiet if {
	regex.match(`^git add( [A-Za-z0-9_.][A-Za-z0-9_./:-]*)+$`, input.tool.command)
	not contains(input.tool.command, "..")
}

quiet if regex.match(`^go (build|vet|test)( \./[a-z0-9_/.]*)*$`, input.tool.command)

# Fetching pages is for people.
denials contains "an agent does not fetch pages" if input.tool.name in {"WebFetch", "WebSearch"}
