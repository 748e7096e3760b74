package mcpserver

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task"
)

const (
	tellUser = "Do not repeat the call. Tell your user what was refused and why."
	lookOnce = "Call task_get and decide again by what it says."
)

// codeAdvice names the next step after an error of the protocol.
func codeAdvice() map[api.Code]string {
	return map[api.Code]string{
		api.UnknownError:      "Tell your user: the daemon's log has the cause.",
		api.InvalidRequest:    "Tell your user: the server and the daemon do not understand each other; their versions may differ.",
		api.MethodNotFound:    "Tell your user: the daemon is older than this server.",
		api.InvalidParams:     "Correct the members that details names, and call again.",
		api.InternalError:     "Nothing was done. Tell your user: the daemon's log has the cause.",
		api.Unauthorized:      "The grant has ended: its task, attempt or review is over, or it was revoked. Stop.",
		api.Forbidden:         tellUser,
		api.NotFound:          "Check the id: there is no such thing, or it is not yours to see.",
		api.Conflict:          "Read the present state and decide again.",
		api.Timeout:           "It may have been done. Call again with the same arguments and the same request_key, which is below where you gave none.",
		api.AppNotRegistered:  "Tell your user: the server has lost its grant. It has to be started again.",
		api.CapabilityDenied:  "This grant does not have the tool. Do without it.",
		api.HookNotSubscribed: "Tell your user.",
		api.ConnectionClosed:  "The daemon is away. Call again later, with the same arguments and the same request_key, which is below where you gave none; tell your user where it stays away.",
	}
}

// taskAdvice names the next step after a refusal about a task.
func taskAdvice() map[task.Code]string {
	return map[task.Code]string{
		task.NotPermitted:        "This is not for your role, or not yours to do now. Do not repeat it.",
		task.RoleMismatch:        "This is not for your role. Do not repeat it.",
		task.SameActor:           "Nobody reviews their own work: another actor has to.",
		task.SelfApproval:        "Whoever asks does not approve: another person has to.",
		task.NeedsPerson:         "A person has to approve it: ocipd approvals. Wait, or go on with something else.",
		task.Classified:          "The task is above the level that this actor may work with. Tell your user.",
		task.PolicyDenied:        tellUser,
		task.Paused:              "A person has paused what you say to others. Wait, and call again later with the same arguments.",
		task.RevisionMismatch:    "The task has changed since you read it. " + lookOnce,
		task.PhaseMismatch:       "The task is in another phase, see details. " + lookOnce,
		task.GuardFailed:         "The conditions in details.task.guards do not hold yet; missing and allowed_transitions say more. See to them first.",
		task.NotBefore:           "Wait until the time in details.task.at.",
		task.RetriesExhausted:    "The attempts are used up. An orchestrator opens the circuit with task_open_circuit, and a person looks at it.",
		task.IdempotencyConflict: "The key is of another effect. Use another idempotency_key, or the same arguments as before.",
		task.Limit:               "There is a limit, see the message. Do it with less.",
		task.RunnerAbsent:        "Nothing can be run now. Tell your user to start: ocipd runner. Then call again with the same arguments.",
		task.LeaseLost:           "The attempt is not yours any more. Stop working on it.",
		task.Claimed:             "Another orchestrator has the task. Take another one from task_list_ready.",
		task.ReadFirst:           "Read the task with task_get, look at what it names, and then give your verdict.",
		task.RequestKeyReused:    "The request_key was of another call. Use a fresh one, or leave it out.",
		task.EffectInFlight:      "It is running. Call task_run_effect again later, with the same arguments.",
		task.EffectUnknown:       "Nobody knows whether it was done: a person has to look. Do not try it again in any way, and tell your user.",
		task.ToolDenied:          "This grant does not have the tool. Do without it.",
	}
}

// ocipAdvice names the next step for a message that was not sent.
func ocipAdvice() map[string]string {
	const wait = "A person has to decide. Do not send it again in other words."
	return map[string]string{
		string(ocip.CrossEnterpriseBlocked):  "The receiver is of another organisation, and nothing goes there. Do not repeat it.",
		string(ocip.ClassificationViolation): "The text holds something above the level that may be shared. Leave that out; do not disguise it.",
		string(ocip.ExchangeExpired):         "The exchange is over. Begin another with new_exchange where there is reason to.",
		string(ocip.ExchangeClosed):          "The exchange is over. Begin another with new_exchange where there is reason to.",
		string(ocip.UnsupportedType):         "Use another exchange_type, which the message names.",
		string(ocip.ReplyNotExpected):        "The sender wants no answer. Do not send one.",
		string(ocip.TooManyHeld):             "Too much waits for a person already. Tell your user to decide: ocipd approvals.",
		string(ocip.CommitmentRequiresHuman): wait,
		string(ocip.RoundLimit):              wait,
		string(ocip.ChainLimit):              wait,
		string(ocip.Paused):                  "A person has paused the sending. Wait, and tell your user.",
		string(ocip.AuditWriteFailed):        "Nothing was sent, since it could not be recorded. Tell your user.",
	}
}
