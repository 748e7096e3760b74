package a2aproxy

import (
	"fmt"
	"strings"
)

// Bindings of the protocol, by the names that agent cards have for them.
const (
	jsonRPC  = "JSONRPC"
	httpJSON = "HTTP+JSON"
	gRPC     = "GRPC"
)

// as is how a request is decided.
type as int

const (
	// asMessage is a message of its sender: its texts, data and files are the message's.
	asMessage as = iota
	// asCall says nothing but ids and numbers. An agent's own is decided as a call of a tool.
	asCall
)

// method is one operation of the protocol.
type method struct {
	// name is that of version 1.0, and old that of version 0.3, or "".
	name, old string
	// verb and path are the route of HTTP+JSON. {x} is the member x of the request.
	verb, path string
	decided    as
	// params and result are the forms of the request and of its answer, or of each event of
	// a stream.
	params, result *shape
	stream         bool
}

// noPush is why a webhook is refused by a proxy that was given none.
const noPush = "the proxy takes no push notifications without --webhook; read the task with GetTask, or follow it with SubscribeToTask"

// methods are all methods of the protocol.
var methods = []method{
	{name: "SendMessage", old: "message/send", verb: "POST", path: "/message:send", decided: asMessage, params: sendShape, result: answerShape},
	{name: "SendStreamingMessage", old: "message/stream", verb: "POST", path: "/message:stream", decided: asMessage, params: sendShape, result: answerShape, stream: true},
	{name: "GetTask", old: "tasks/get", verb: "GET", path: "/tasks/{id}", decided: asCall, params: taskShape, result: taskResultShape},
	{name: "ListTasks", verb: "GET", path: "/tasks", decided: asCall, params: listShape, result: tasksShape},
	{name: "CancelTask", old: "tasks/cancel", verb: "POST", path: "/tasks/{id}:cancel", decided: asCall, params: taskShape, result: taskResultShape},
	{name: "SubscribeToTask", old: "tasks/resubscribe", verb: "GET", path: "/tasks/{id}:subscribe", decided: asCall, params: taskShape, result: answerShape, stream: true},
	{name: "GetExtendedAgentCard", old: "agent/getAuthenticatedExtendedCard", verb: "GET", path: "/extendedAgentCard", decided: asCall, params: tenantShape, result: anyShape},
	{name: create, old: "tasks/pushNotificationConfig/set", verb: "POST", path: "/tasks/{taskId}/pushNotificationConfigs", decided: asCall, params: pushShape, result: configShape},
	{name: "GetTaskPushNotificationConfig", old: "tasks/pushNotificationConfig/get", verb: "GET", path: "/tasks/{taskId}/pushNotificationConfigs/{id}", decided: asCall, params: pushShape, result: configShape},
	{name: "ListTaskPushNotificationConfigs", old: "tasks/pushNotificationConfig/list", verb: "GET", path: "/tasks/{taskId}/pushNotificationConfigs", decided: asCall, params: pushShape, result: configsShape},
	{name: "DeleteTaskPushNotificationConfig", old: "tasks/pushNotificationConfig/delete", verb: "DELETE", path: "/tasks/{taskId}/pushNotificationConfigs/{id}", decided: asCall, params: pushShape, result: anyShape},
}

// named finds a method by its name in either version.
func named(name string) *method {
	for _, m := range methods {
		if name != "" && (m.name == name || m.old == name) {
			return &m
		}
	}
	return nil
}

// route finds the method of a route, with the members that the path holds. A first segment
// before the route names a tenant. The path is escaped.
func route(verb, path string) (*method, map[string]string, error) {
	if strings.HasPrefix(path, "/v1/") {
		return nil, nil, fmt.Errorf("%s %s: HTTP+JSON of version 0.3 is not decided; use JSON-RPC, or version 1.0", verb, path)
	}
	for _, m := range methods {
		if m.verb != verb && (m.name != "SubscribeToTask" || verb != "POST") {
			continue
		}
		for _, form := range []string{m.path, "/{tenant}" + m.path} {
			if found, ok := match(form, path); ok {
				return &m, found, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("the protocol has no route %s %s", verb, path)
}

// match compares a path with a form, segment by segment.
func match(form, path string) (found map[string]string, ok bool) {
	forms, parts := strings.Split(form, "/"), strings.Split(path, "/")
	if len(forms) != len(parts) {
		return nil, false
	}
	found = make(map[string]string)
	for i, f := range forms {
		before, word, _ := strings.Cut(f, "}")
		name, isName := strings.CutPrefix(before, "{")
		if !isName {
			if f != parts[i] {
				return nil, false
			}
			continue
		}
		value, ok := strings.CutSuffix(parts[i], word)
		// A plain id needs no escape, and any other value could be read in two ways.
		if !ok || !isPlain(value) || strings.Contains(value, ":") {
			return nil, false
		}
		found[name] = value
	}
	return found, true
}
