package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
)

// OCSFVersion is the schema of the events. It is the first one with the record_integrity profile.
const OCSFVersion = "1.9.0-dev"

const (
	ocsfClass    = 6003 // API Activity
	ocsfCategory = 6    // Application Activity
)

// Activities of API Activity (activity_id).
const (
	activityCreate = 1
	activityRead   = 2
	activityUpdate = 3
	activityDelete = 4
	activityOther  = 99
)

type ocsfEvent struct {
	// ClassUID is first: it marks a line of this sink.
	ClassUID     int    `json:"class_uid"`
	ClassName    string `json:"class_name"`
	CategoryUID  int    `json:"category_uid"`
	CategoryName string `json:"category_name"`
	ActivityID   int    `json:"activity_id"`
	ActivityName string `json:"activity_name"`
	TypeUID      int    `json:"type_uid"`
	TypeName     string `json:"type_name"`
	Time         int64  `json:"time"`
	TimezoneOff  int    `json:"timezone_offset"`
	SeverityID   int    `json:"severity_id"`
	Severity     string `json:"severity"`
	StatusID     int    `json:"status_id"`
	Status       string `json:"status"`
	StatusCode   string `json:"status_code,omitzero"`
	StatusDetail string `json:"status_detail,omitzero"`
	Message      string `json:"message"`

	Metadata ocsfMetadata `json:"metadata"`

	Actor       ocsfActor      `json:"actor"`
	API         ocsfAPI        `json:"api"`
	SrcEndpoint ocsfEndpoint   `json:"src_endpoint"`
	DstEndpoint ocsfEndpoint   `json:"dst_endpoint,omitzero"`
	Resources   []ocsfResource `json:"resources,omitempty"`

	// The security_control profile.
	ActionID      int        `json:"action_id"`
	Action        string     `json:"action"`
	DispositionID int        `json:"disposition_id"`
	Disposition   string     `json:"disposition"`
	IsAlert       bool       `json:"is_alert"`
	Policy        ocsfPolicy `json:"policy,omitzero"`

	// The record_integrity profile.
	Attestations []ocsfAttestation `json:"attestation_list,omitempty"`

	RawData     string          `json:"raw_data"`
	RawDataHash ocsfFingerprint `json:"raw_data_hash"`
	RawDataSize int             `json:"raw_data_size"`
	Unmapped    jsontext.Value  `json:"unmapped,omitzero"`
}

type ocsfMetadata struct {
	Version          string      `json:"version"`
	Product          ocsfProduct `json:"product"`
	Profiles         []string    `json:"profiles"`
	UID              string      `json:"uid"`
	OriginalEventUID string      `json:"original_event_uid,omitzero"`
	EventCode        string      `json:"event_code"`
	Sequence         uint64      `json:"sequence,omitzero"`
	CorrelationUID   string      `json:"correlation_uid,omitzero"`
	LogName          string      `json:"log_name"`
	LogProvider      string      `json:"log_provider"`
	LogFormat        string      `json:"log_format"`
	OriginalTime     string      `json:"original_time,omitzero"`
	TenantUID        string      `json:"tenant_uid,omitzero"`
}

type ocsfProduct struct {
	Name       string `json:"name"`
	VendorName string `json:"vendor_name"`
	Version    string `json:"version,omitzero"`
}

type ocsfActor struct {
	AppName string      `json:"app_name"`
	AppUID  string      `json:"app_uid,omitzero"`
	User    ocsfUser    `json:"user,omitzero"`
	Process ocsfProcess `json:"process,omitzero"`
}

type ocsfProcess struct {
	PID int `json:"pid"`
}

type ocsfUser struct {
	UID    string  `json:"uid,omitzero"`
	Name   string  `json:"name,omitzero"`
	TypeID int     `json:"type_id"`
	Type   string  `json:"type"`
	Org    ocsfOrg `json:"org,omitzero"`
}

type ocsfOrg struct {
	UID    string `json:"uid,omitzero"`
	OUName string `json:"ou_name,omitzero"`
}

type ocsfAPI struct {
	Operation string       `json:"operation"`
	Version   string       `json:"version"`
	Service   ocsfService  `json:"service"`
	Request   ocsfRequest  `json:"request"`
	Response  ocsfResponse `json:"response,omitzero"`
}

type ocsfService struct {
	Name    string `json:"name"`
	Version string `json:"version,omitzero"`
}

type ocsfRequest struct {
	UID string `json:"uid"`
}

type ocsfResponse struct {
	Message      string `json:"message,omitzero"`
	Error        string `json:"error,omitzero"`
	ErrorMessage string `json:"error_message,omitzero"`
}

type ocsfEndpoint struct {
	UID      string   `json:"uid,omitzero"`
	Name     string   `json:"name,omitzero"`
	Hostname string   `json:"hostname,omitzero"`
	SvcName  string   `json:"svc_name,omitzero"`
	Domain   string   `json:"domain,omitzero"`
	Owner    ocsfUser `json:"owner,omitzero"`
}

type ocsfResource struct {
	UID  string `json:"uid"`
	Type string `json:"type"`
}

type ocsfPolicy struct {
	Name      string `json:"name"`
	Version   string `json:"version,omitzero"`
	Desc      string `json:"desc,omitzero"`
	IsApplied bool   `json:"is_applied"`
}

type ocsfAttestation struct {
	UID         string          `json:"uid"`
	Authority   string          `json:"authority_uid"`
	ChainUID    string          `json:"chain_uid,omitzero"`
	Fingerprint ocsfFingerprint `json:"fingerprint"`
	PrevEvent   ocsfPrevEvent   `json:"prev_event,omitzero"`
}

type ocsfPrevEvent struct {
	UID         string          `json:"uid"`
	Fingerprint ocsfFingerprint `json:"fingerprint"`
}

type ocsfFingerprint struct {
	AlgorithmID     int    `json:"algorithm_id"`
	Algorithm       string `json:"algorithm"`
	EncodingID      int    `json:"encoding_id"`
	Encoding        string `json:"encoding"`
	SerializationID int    `json:"serialization_id"`
	Serialization   string `json:"serialization"`
	Value           string `json:"value"`
}

// sealed describes the bytes that a record's hash covers (docs/for-auditors/record-format.md, The
// line).
const sealed = `ocipd audit line: the bytes of raw_data before ","hash":"`

// lineHash returns a record's hash as a fingerprint. It does not belong to the OCSF event: it
// covers the line, which raw_data contains whole.
func lineHash(h audit.Hash) ocsfFingerprint {
	f := sha256Of(h.String())
	f.SerializationID, f.Serialization = 99, sealed
	return f
}

func sha256Of(value string) ocsfFingerprint {
	return ocsfFingerprint{
		AlgorithmID: 3, Algorithm: "SHA-256", EncodingID: 1, Encoding: "Hex", SerializationID: 1, Serialization: "Flat", Value: value,
	}
}

// OCSF maps a record to one JSON object of class API Activity (6003) with the profiles
// security_control and record_integrity, without a newline. A line that is no record becomes an
// event that says so and contains the line. metadata.uid is the record's hash, the same in every
// export of it.
//
// Source: OCSF schema 1.9.0-dev, events/application/api_activity.json.
func (m *Mapping) OCSF(r *Record) []byte {
	ev := m.ocsf(r)
	b, err := json.Marshal(ev)
	if err != nil {
		// The line reads as a record and yet cannot be encoded as JSON.
		ev = m.ocsf(&Record{Line: r.Line})
		b, err = json.Marshal(ev)
	}
	if err != nil {
		// All texts here come from this program or were made valid above.
		panic(fmt.Sprintf("cannot encode an OCSF event: %v", err))
	}
	return b
}

func (m *Mapping) ocsf(r *Record) *ocsfEvent {
	e := &r.Entry
	ev := &ocsfEvent{
		ClassUID: ocsfClass, ClassName: "API Activity", CategoryUID: ocsfCategory, CategoryName: "Application Activity",
		Message: strings.ToValidUTF8(summary(r), "\uFFFD"), RawDataSize: len(r.Line), RawData: string(r.Line),
	}
	sum := sha256.Sum256(r.Line)
	ev.RawDataHash = sha256Of(hex.EncodeToString(sum[:]))
	ev.Metadata = ocsfMetadata{
		Version: OCSFVersion, Product: ocsfProduct{Name: ProductName, VendorName: "OpenClawOS", Version: m.Version},
		Profiles: []string{"security_control", "record_integrity"}, UID: ev.RawDataHash.Value, EventCode: operation(r),
		LogName: "audit", LogProvider: ProductName, LogFormat: "JSON",
	}
	grave, alert := severityOf(r)
	ev.SeverityID, ev.Severity = ocsfSeverity(grave)
	ev.IsAlert = alert
	ev.ActivityID = activity(r)
	if ev.ActivityName = activityName(ev.ActivityID); ev.ActivityName == "" {
		ev.ActivityName = ev.Metadata.EventCode
	}
	ev.TypeUID, ev.TypeName = ocsfClass*100+ev.ActivityID, "API Activity: "+cmp.Or(activityName(ev.ActivityID), "Other")
	ev.API = ocsfAPI{
		Operation: ev.Metadata.EventCode, Version: "1.0", Service: ocsfService{Name: ProductName, Version: m.Version},
		Request: ocsfRequest{UID: ev.Metadata.UID},
	}
	ev.Actor = ocsfActor{AppName: ProductName}
	ev.SrcEndpoint = ocsfEndpoint{SvcName: ProductName, Hostname: m.Host}
	if !r.Known {
		return ev.unread(r)
	}

	ev.Time = e.Time.UnixMilli()
	ev.Unmapped = r.Line
	md := &ev.Metadata
	md.UID, md.OriginalEventUID, md.Sequence, md.TenantUID = e.Hash.String(), e.ID, e.Seq, e.TenantID
	md.OriginalTime = e.Time.UTC().Format(time.RFC3339Nano)
	md.CorrelationUID = cmp.Or(e.ConversationID, e.ExchangeID)
	ev.StatusDetail = e.PolicyReason
	ev.API.Request.UID = cmp.Or(e.DispatchID, e.ID)
	ev.API.Response = ocsfResponse{Message: e.Outcome}
	ev.code(e)
	ev.verdict(e)
	ev.parties(e)
	for _, m := range audit.Members() {
		if id := *m.Of(&e.Record); m.OCSF != "" && id != "" {
			ev.Resources = append(ev.Resources, ocsfResource{id, m.OCSF})
		}
	}
	att := ocsfAttestation{
		UID: strconv.FormatUint(e.Seq, 10), Authority: cmp.Or(m.Log, ProductName), ChainUID: m.Log, Fingerprint: lineHash(e.Hash),
	}
	if (e.Prev != audit.Hash{}) {
		att.PrevEvent = ocsfPrevEvent{UID: e.Prev.String(), Fingerprint: lineHash(e.Prev)}
	}
	ev.Attestations = []ocsfAttestation{att}
	return ev
}

// unread completes the event for a line that is no record.
func (ev *ocsfEvent) unread(r *Record) *ocsfEvent {
	ev.Status, ev.StatusID = "Unknown", 0
	ev.Action, ev.ActionID = "Observed", 3
	ev.Disposition, ev.DispositionID = "Alert", 19
	if valid := strings.ToValidUTF8(ev.RawData, "\uFFFD"); valid != ev.RawData {
		ev.RawData = valid
		// JSON does not escape any character of standard Base64.
		ev.Unmapped = jsontext.Value(`{"line_base64":"` + base64.StdEncoding.EncodeToString(r.Line) + `"}`)
	}
	return ev
}

// code gives the reason for a refusal, a wait or a failure. For a success, such as an approval, the
// code of the record is the reason for the question.
func (ev *ocsfEvent) code(e *audit.Entry) {
	if k := kindOf(e); e.Code == "" || k != kindRefused && k != kindWaits && k != kindFailed {
		return
	}
	ev.StatusCode, ev.API.Response.Error, ev.API.Response.ErrorMessage = e.Code, e.Code, e.PolicyReason
}

// verdict fills the status and the security_control profile.
func (ev *ocsfEvent) verdict(e *audit.Entry) {
	ok := func() { ev.Status, ev.StatusID = "Success", 1 }
	failed := func() { ev.Status, ev.StatusID = "Failure", 2 }
	act := func(name string, id int) { ev.Action, ev.ActionID = name, id }
	left := func(name string, id int) { ev.Disposition, ev.DispositionID = name, id }
	switch kindOf(e) {
	case kindAllowed:
		ok()
		act("Allowed", 1)
		left("Allowed", 1)
		if len(e.DataWithheld) > 0 {
			act("Modified", 4)
			left("Custom Action", 7)
			ev.Message = text.Clip("data withheld; "+ev.Message, maxSummary)
		}
	case kindApproved:
		ok()
		act("Allowed", 1)
		left("Approved", 8)
	case kindWaits:
		ev.Status, ev.StatusID = "Waiting for a person", 99
		act("Held for a person", 99)
		left("Delayed", 14)
	case kindRefused:
		failed()
		act("Denied", 2)
		switch e.ActionType {
		case audit.ActionSecurity:
			left("Unauthorized", 26)
		case audit.ActionApproval:
			left("Rejected", 25)
		default:
			left("Blocked", 2)
		}
	case kindFailed:
		failed()
		act("Observed", 3)
		left("Error", 27)
	case kindEnded:
		failed()
		act("Observed", 3)
		left("Logged", 17)
	case byVerdict, kindDone:
		ok()
		act("Observed", 3)
		left("Logged", 17)
	}
	switch {
	case e.ActionType == audit.ActionPolicyChange:
		ev.Policy = ocsfPolicy{Name: ProductName, Version: e.PolicyRevision, IsApplied: e.Event == "loaded"}
	case e.PolicyApplied != "" && e.PolicyApplied != "none":
		ev.Policy = ocsfPolicy{Name: e.PolicyApplied, Version: e.PolicyRevision, Desc: e.PolicyReason, IsApplied: true}
	}
}

// parties fills in the actor and the other party. If a person, an operator or the daemon acted, and
// not the subject of the record, the subject becomes a resource.
func (ev *ocsfEvent) parties(e *audit.Entry) {
	from, to := sides(e)
	who, other := actorOf(e)
	switch {
	case other:
		ev.Actor.User = who
		if from.name() != "" {
			ev.Resources = append(ev.Resources, ocsfResource{from.name(), "agent"})
		}
	default:
		if e.Side != audit.SideReceiver && e.AppID != "" {
			ev.Actor.AppName, ev.Actor.AppUID = e.AppID, e.AppID
		}
		ev.Actor.User = from.ocsfUser()
		if src := from.ocsfEndpoint(); src != (ocsfEndpoint{}) {
			ev.SrcEndpoint = src
			if e.Side != audit.SideReceiver {
				ev.SrcEndpoint.SvcName = e.AppID
			}
		} else if e.Side == audit.SideReceiver && e.SessionKey != "" {
			ev.SrcEndpoint = ocsfEndpoint{Name: e.SessionKey}
		}
	}
	if pid, ok := e.Details["pid"].(float64); ok && pid > 0 && pid < 1<<31 {
		ev.Actor.Process.PID = int(pid)
	}
	ev.DstEndpoint = to.ocsfEndpoint()
	if ev.DstEndpoint == (ocsfEndpoint{}) && e.Side != audit.SideReceiver && e.SessionKey != "" {
		ev.DstEndpoint = ocsfEndpoint{Name: e.SessionKey}
	}
}

// Users of OCSF (user.type_id).
const (
	userOrdinary = 1
	userAdmin    = 2
	userService  = 4
)

// ocsfUserOf returns a user. Its type tells its rights.
func ocsfUserOf(name string, kind int) ocsfUser {
	return ocsfUser{UID: name, Name: name, TypeID: kind, Type: map[int]string{userOrdinary: "User", userAdmin: "Admin", userService: "Service"}[kind]}
}

// actorOf returns an actor other than the sender of the record's message: a person who decides, an
// operator, an actor of a task, a witness; the zero user for the daemon itself. Other is false if
// the sender or the counterparty acted.
func actorOf(e *audit.Entry) (who ocsfUser, other bool) {
	by, _ := e.Details["by"].(string)
	operator := operatorOf(e.Details)
	if asked, ok := e.Details["operator"].(map[string]any); ok {
		operator = operatorOf(asked)
	}
	switch by {
	case "":
	case "operator": // by an operator's process
		return ocsfUserOf(cmp.Or(operator, by), userAdmin), true
	case "start", "file", "signal", "retention", "process", "check of the log":
		return ocsfUser{}, true
	default:
		switch {
		case strings.HasPrefix(by, "witness:"):
			return ocsfUserOf(by, userService), true
		case e.ActionType == audit.ActionApproval:
			return ocsfUserOf(by, userOrdinary), true
		}
		return ocsfUserOf(by, userAdmin), true
	}
	switch {
	case readingOf(e).alone:
		return ocsfUser{}, true
	case e.Role == "daemon":
		return ocsfUser{}, true
	case e.Role == "operator":
		return ocsfUserOf(cmp.Or(e.Actor, operator, e.Role), userAdmin), true
	case e.Actor != "":
		return ocsfUserOf(e.Actor, userOrdinary), true
	case operator != "" && e.AgentID == "" && e.AppID == "":
		return ocsfUserOf(operator, userAdmin), true
	}
	return ocsfUser{}, false
}

// operatorOf returns the operating system's name for the user of a process in a record, or "" if
// the record has none.
func operatorOf(details map[string]any) string {
	uid, ok := details["uid"].(float64)
	if !ok || uid < 0 {
		return ""
	}
	return "uid:" + strconv.FormatFloat(uid, 'f', 0, 64)
}

func (p party) ocsfUser() ocsfUser {
	if p.user == "" {
		return ocsfUser{}
	}
	return ocsfUser{UID: p.user, TypeID: 1, Type: "User", Org: ocsfOrg{UID: p.tenant, OUName: p.org}}
}

func (p party) ocsfEndpoint() ocsfEndpoint {
	if p.name() == "" {
		return ocsfEndpoint{}
	}
	return ocsfEndpoint{UID: p.name(), Name: p.name(), Domain: p.tenant, Owner: p.ocsfUser()}
}

// ocsfSeverity returns severity_id and its caption.
func ocsfSeverity(s severity) (int, string) {
	switch s {
	case info:
		return 1, "Informational"
	case low:
		return 2, "Low"
	case medium:
		return 3, "Medium"
	case high:
		return 4, "High"
	case critical:
		return 5, "Critical"
	case byKind, unknown:
	}
	return 0, "Unknown"
}

func activityName(id int) string {
	switch id {
	case activityCreate:
		return "Create"
	case activityRead:
		return "Read"
	case activityUpdate:
		return "Update"
	case activityDelete:
		return "Delete"
	}
	return ""
}

// activity returns the closest activity of the class: an outgoing message or an arriving app is a
// create, an incoming message is a read, a change of state is an update.
func activity(r *Record) int {
	e := &r.Entry
	if !r.Known {
		return activityOther
	}
	switch e.ActionType {
	case audit.ActionExchange:
		switch {
		case e.Event == "resolved" || e.Event == "expired":
			return activityUpdate
		case e.Side == audit.SideReceiver || e.Event == "malformed_envelope":
			return activityRead
		}
		return activityCreate
	case audit.ActionApproval, audit.ActionPolicyChange, audit.ActionConfigChange:
		return activityUpdate
	case audit.ActionDelivery:
		if e.Event == "human_message" {
			return activityRead
		}
		return activityUpdate
	case audit.ActionCheckpoint:
		return activityCreate
	case audit.ActionAppLifecycle:
		switch e.Event {
		case "registered":
			return activityCreate
		case "shutdown", "left", "lost":
			return activityDelete
		}
		return activityUpdate
	}
	return activityOther
}
