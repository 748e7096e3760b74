package export

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// OTLPScope is the instrumentation scope of the log records.
const OTLPScope = "ocipd.audit"

// OTLP maps a page of records to OTLP logs, with the same fields as an ExportLogsServiceRequest
// (opentelemetry-proto, logs/v1/logs.proto, LogsData). The body of each is the line, and its
// attribute log.record.uid is the record's hash.
func (m *Mapping) OTLP(batch []Record) *logs.LogsData {
	list := make([]*logs.LogRecord, len(batch))
	for i := range batch {
		list[i] = otlpRecord(&batch[i])
	}
	attrs := attributes(nil, []pair{
		{"service.name", ProductName}, {"service.version", m.Version}, {"host.name", m.Host}, {"ocipd.log", m.Log},
	})
	return &logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: attrs},
		ScopeLogs: []*logs.ScopeLogs{{
			Scope: &common.InstrumentationScope{Name: OTLPScope, Version: m.Version}, LogRecords: list,
		}},
	}}}
}

// OTLPJSON is [Mapping.OTLP] as one line of JSON without a newline, in the form of the OTLP file
// exporter (opentelemetry-proto, JSON Protobuf encoding).
func (m *Mapping) OTLPJSON(batch []Record) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(m.OTLP(batch))
	if err != nil {
		return nil, err
	}
	// protojson inserts random blanks.
	v := jsontext.Value(b)
	err = v.Compact()
	return v, err
}

// encodeOTLP encodes a page as protobuf.
func (m *Mapping) encodeOTLP(batch []Record) ([]byte, error) {
	return proto.Marshal(m.OTLP(batch))
}

func otlpRecord(r *Record) *logs.LogRecord {
	e := &r.Entry
	body := strings.ToValidUTF8(string(r.Line), "\uFFFD")
	l := &logs.LogRecord{
		Body:      &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: body}},
		EventName: ProductName + "." + operation(r),
	}
	grave, _ := severityOf(r)
	l.SeverityText, l.SeverityNumber = otlpSeverity(grave)
	if !r.Known {
		return l
	}
	l.TimeUnixNano = uint64(max(0, e.Time.UnixNano()))
	l.ObservedTimeUnixNano = l.TimeUnixNano
	from, to := sides(e)
	pairs := []pair{{"log.record.uid", e.Hash.String()}, {"ocipd.hash", e.Hash.String()}, {"ocipd.prev", e.Prev.String()}}
	for _, m := range audit.Members() {
		if m.OTLP != "" {
			pairs = append(pairs, pair{m.OTLP, *m.Of(&e.Record)})
		}
	}
	l.Attributes = attributes([]*common.KeyValue{
		{Key: "ocipd.seq", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(e.Seq)}}},
	}, append(pairs, pair{"ocipd.from", from.name()}, pair{"ocipd.to", to.name()}, pair{"ocipd.summary", summary(r)}))
	return l
}

type pair struct{ key, value string }

// attributes appends pairs, except those without a value.
func attributes(list []*common.KeyValue, pairs []pair) []*common.KeyValue {
	for _, p := range pairs {
		if p.value != "" {
			list = append(list, &common.KeyValue{Key: p.key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: p.value}}})
		}
	}
	return list
}

func otlpSeverity(s severity) (string, logs.SeverityNumber) {
	switch s {
	case info:
		return "INFO", logs.SeverityNumber_SEVERITY_NUMBER_INFO
	case low:
		return "NOTICE", logs.SeverityNumber_SEVERITY_NUMBER_INFO2
	case medium:
		return "WARN", logs.SeverityNumber_SEVERITY_NUMBER_WARN
	case high:
		return "ERROR", logs.SeverityNumber_SEVERITY_NUMBER_ERROR
	case critical:
		return "CRITICAL", logs.SeverityNumber_SEVERITY_NUMBER_ERROR2
	case byKind, unknown:
	}
	return "UNKNOWN", logs.SeverityNumber_SEVERITY_NUMBER_UNSPECIFIED
}
