package skill

import "github.com/openclawos/ocipd/internal/task"

// language is one language of the skills, and the words of its tables.
type language struct {
	// skill is the skill's name and folder, and folder that of its pages here.
	skill, folder string
	phases        map[task.Phase]string
	roles         map[task.Role]roleWords
	// reviewer names a reviewer of either kind.
	reviewer string
	// meanings are the conditions of the guards, and tools the purposes of the tools; nil for the
	// language of the tables themselves.
	meanings map[task.Guard]string
	tools    map[string]string
	// sign says that a tool shows a role, and conditions that a move has guards.
	sign, conditions, comma, yes string
	heads                        heads
}

// roleWords are a role's name, its work, and the actions that it leaves to others.
type roleWords struct{ name, does, never string }

// heads are the heads of the tables.
type heads struct {
	roles, phases, tools, transitions, guards []string
	tool, section                             string
}

// languages are the languages of the skills.
func languages() []*language { return []*language{english(), chinese()} }

func english() *language {
	return &language{
		skill: "ocipd-tasks", folder: "en", reviewer: "reviewer",
		roles: map[task.Role]roleWords{
			task.Orchestrator:    {"orchestrator", "creates the task, has the other roles work, reads the evidence, moves the task", "gives a verdict, writes files of the task"},
			task.Executor:        {"executor", "makes one attempt: works in the workspace, reports progress, records artifacts, finishes the attempt", "moves the task, reviews, runs effects"},
			task.SpecReviewer:    {"spec reviewer", "says whether the specification can be checked, and later whether the artifacts meet it", "changes files, moves the task"},
			task.QualityReviewer: {"quality reviewer", "says whether the work can be maintained and is safe: tests, errors, regressions", "changes files, moves the task"},
			task.Lobster:         {"lobster", "asks a person for each approval, and runs approved effects; the orchestrator can do both too", "approves, moves the task"},
		},
		sign: "`%s` (%s)", conditions: " if %s", comma: ", ", yes: "yes",
		heads: heads{
			roles: []string{"role", "does", "never"}, phases: []string{"phase", "who works", "tools", "the orchestrator then moves it to", "or to"},
			tools: []string{"tool", "purpose", "required"}, tool: "tool",
		},
	}
}

func chinese() *language {
	return &language{
		skill: "ocipd-tasks-zh", folder: "zh", reviewer: "审查者",
		phases: map[task.Phase]string{
			task.SpecDraft: "规范草稿", task.SpecReview: "规范审查", task.ExecutionReady: "执行就绪", task.Executing: "执行中", task.SpecGate: "规范关卡",
			task.QualityGate: "质量关卡", task.AwaitingApproval: "等待审批", task.ReadyToResume: "可以恢复", task.Completed: "已完成", task.Failed: "失败", task.CircuitOpen: "熔断开启",
		},
		roles: map[task.Role]roleWords{
			task.Orchestrator:    {"编排者", "创建任务，让其他角色工作，读取证据，移动任务", "给出裁决，写任务的文件"},
			task.Executor:        {"执行者", "进行一次尝试：在工作区工作，报告进展，登记工件，结束尝试", "移动任务，审查，执行副作用"},
			task.SpecReviewer:    {"规范审查者", "判断规范能否检验，之后判断工件是否满足规范", "改文件，移动任务"},
			task.QualityReviewer: {"质量审查者", "判断工作是否可维护、是否安全：测试、错误、回归", "改文件，移动任务"},
			task.Lobster:         {"审批代理", "为每个副作用请求人的批准，并运行获批的副作用；编排者也可以做", "批准，移动任务"},
		},
		meanings: map[task.Guard]string{
			task.Complete: "规范的 `missing` 为空", task.Idle: "没有正在运行的尝试", task.Leased: "有正在运行的尝试，且租约未到期",
			task.Unblocked: "`depends_on` 的任务都已完成", task.Delivered: "最近一次尝试成功，并且有审查报告以外的工件",
			task.SpecOK: "足够多的规范审查者批准当前状态，且没有反对的最新审查", task.QualityOK: "足够多的质量审查者批准，且没有反对的最新审查",
			task.NoEffect: "没有已计划或失败的副作用", task.Approved: "每个未完成的副作用都有可用的批准", task.Unapproved: "有一个未完成的副作用没有批准",
			task.Unreviewed: "缺少审查，因为副作用是在审查之后计划的", task.Changes: "人要求修改一个未完成的副作用", task.Quiet: "没有正在进行或结果未知的运行",
		},
		tools: map[string]string{
			"task_create": "创建任务", "task_get": "读取任务", "task_transition": "把任务移到另一个阶段", "task_start_attempt": "开始一次尝试",
			"task_record_checkpoint": "报告进展；`heartbeat` 延长租约", "task_record_artifact": "登记工件", "task_append_review": "给出裁决和调查结果",
			"task_request_approval": "请求人批准一个副作用", "task_resolve_approval": "转达决定；批准只能由人作出", "task_open_circuit": "停止任务，等人处理",
			"task_list_ready": "列出等待编排者的任务", "task_claim": "在多个编排者中认领任务", "task_update": "修改标题、标签、优先级、依赖；在草稿阶段修改规范",
			"task_finish_attempt": "结束尝试", "task_plan_effect": "计划一个副作用", "task_run_effect": "运行获批的副作用，只运行一次",
			"task_finish_effect": "报告外部副作用的结果", "task_cancel_effect": "取消已计划或失败的副作用", "task_grant": "为一个任务发令牌", "task_revoke_grant": "收回令牌",
		},
		sign: "`%s`（%s）", conditions: "（条件：%s）", comma: "，", yes: "是",
		heads: heads{
			roles: []string{"角色", "职责", "从不"}, phases: []string{"阶段", "谁工作", "工具", "编排者随后移到", "或移到"},
			tools: []string{"工具", "用途", "必填"}, transitions: []string{"从", "到", "条件"}, guards: []string{"条件", "成立于"}, tool: "工具", section: "全部转换",
		},
	}
}
