package export

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxResponse bounds the part of an answer that is read, in bytes.
const maxResponse = 64 << 10

// otlpSink posts pages as OTLP/HTTP with binary protobuf and waits for the answer (OTLP
// specification, OTLP/HTTP). If a collector refuses a page by a status, it is sent again, since no
// record may be lost. Records that the collector rejects in a partial success are counted and not
// sent again, as the specification demands.
type otlpSink struct {
	endpoint string
	headers  http.Header
	gzip     bool
	mapping  *Mapping
	client   *http.Client
	now      func() time.Time
}

func newOTLPSink(s *Spec, m *Mapping, now func() time.Time) (*otlpSink, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the endpoint is no URL with http or https and a host")
	}
	conf, err := s.TLS.config("")
	if err != nil {
		return nil, err
	}
	o := &otlpSink{endpoint: s.Endpoint, headers: http.Header{}, gzip: s.Gzip, mapping: m, now: now}
	for name, value := range s.Headers {
		o.headers.Set(name, value)
	}
	o.headers.Set("Content-Type", "application/x-protobuf")
	o.headers.Set("User-Agent", ProductName+"/"+m.Version)
	if o.gzip {
		o.headers.Set("Content-Encoding", "gzip")
	}
	o.client = &http.Client{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConns: 1, IdleConnTimeout: 90 * time.Second,
		},
		// A redirect would send the headers to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return o, nil
}

// Close closes idle connections.
func (o *otlpSink) Close() error {
	o.client.CloseIdleConnections()
	return nil
}

var errTooLarge = errors.New("the request is too large for it")

// Send posts a page, in halves if it is too large.
func (o *otlpSink) Send(ctx context.Context, batch []Record) (Ack, error) {
	ack, err := o.post(ctx, batch)
	if !errors.Is(err, errTooLarge) || len(batch) == 1 {
		return ack, err
	}
	first, err := o.Send(ctx, batch[:len(batch)/2])
	if err != nil {
		return Ack{}, err
	}
	second, err := o.Send(ctx, batch[len(batch)/2:])
	if err != nil {
		return Ack{}, err
	}
	return Ack{Refused: first.Refused + second.Refused, Why: cmp.Or(first.Why, second.Why)}, nil
}

func (o *otlpSink) post(ctx context.Context, batch []Record) (Ack, error) {
	body, err := o.mapping.encodeOTLP(batch)
	if err == nil && o.gzip {
		body, err = compressed(body)
	}
	if err != nil {
		return Ack{}, fmt.Errorf("cannot encode the records for OTLP: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint, bytes.NewReader(body))
	if err != nil {
		return Ack{}, err
	}
	req.Header = o.headers.Clone()
	res, err := o.client.Do(req)
	if err != nil {
		// The client's own error contains the URL, which may contain a password.
		if shown, ok := errors.AsType[*url.Error](err); ok {
			err = shown.Err
		}
		return Ack{}, fmt.Errorf("cannot reach the OTLP endpoint: %w", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return Ack{}, fmt.Errorf("cannot read the answer of the OTLP endpoint: %w", err)
	}
	if res.StatusCode/100 != 2 {
		err := fmt.Errorf("the OTLP endpoint answers %s%s", oneLine(res.Status), said(answer))
		if res.StatusCode == http.StatusRequestEntityTooLarge {
			return Ack{}, fmt.Errorf("%w: %w", err, errTooLarge)
		}
		if after, ok := retryAfter(res.Header.Get("Retry-After"), o.now()); ok {
			return Ack{}, &busyError{after: after, err: err}
		}
		return Ack{}, err
	}
	refused, why, err := partialSuccess(answer)
	if err != nil {
		return Ack{}, fmt.Errorf("cannot read the answer of the OTLP endpoint: %w", err)
	}
	return Ack{Refused: int(min(uint64(len(batch)), refused)), Why: why}, nil
}

func compressed(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// said returns the message of a google.rpc.Status, the body of a failure.
func said(answer []byte) string {
	message := ""
	err := fields(answer, func(num protowire.Number, value []byte, _ uint64) error {
		if num == 2 {
			message = string(value)
		}
		return nil
	})
	if err != nil || message == "" {
		return ""
	}
	return ": " + text.Clip(oneLine(message), maxSummary)
}

// retryAfter reads the header of that name: seconds or a date (RFC 9110 section
// 10.2.3).
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	return max(0, at.Sub(now)), err == nil
}

// partialSuccess reads an ExportLogsServiceResponse (opentelemetry-proto,
// collector/logs/v1/logs_service.proto). The generated type comes with a gRPC
// server, so its three fields are read here.
func partialSuccess(answer []byte) (refused uint64, why string, err error) {
	err = fields(answer, func(num protowire.Number, partial []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		return fields(partial, func(num protowire.Number, text []byte, n uint64) error {
			if num == 1 && n <= math.MaxInt64 { // int64; a negative number is no count
				refused = n
			}
			if num == 2 {
				why = string(text)
			}
			return nil
		})
	})
	return refused, why, err
}

// fields walks the fields of a protobuf message. A field has text or n.
func fields(b []byte, visit func(num protowire.Number, text []byte, n uint64) error) error {
	for len(b) > 0 {
		num, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var text []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(num, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := visit(num, text, n); err != nil {
			return err
		}
	}
	return nil
}
