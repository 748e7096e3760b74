# Rules of your own about tasks, beside those of task.rego, which describes input. Each
# denial refuses, and each question asks a person; its text is the reason that people
# read. These two rules are examples: change them, and their tests in
# my_task_rules_test.rego.
package ocip.task

# Two people approve a deployment.
approvers contains 2 if {
	input.action == "task_effect"
	input.effect.kind == "deployment"
}

# Nothing labelled frozen is begun.
denials contains "the task is frozen" if {
	input.action == "task_attempt"
	"frozen" in input.task.labels
}
