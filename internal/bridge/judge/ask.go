package judge

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// Server is the operator's server with OpenAI's chat completions.
type Server struct {
	// URL is its base, and Model the model's name there.
	URL, Model string
	// Timeout bounds one question, from the connection to the last byte of the answer.
	Timeout time.Duration
	// Elsewhere allows addresses other than those of this machine's loopback.
	Elsewhere bool
}

// Limits of a server's answer, in bytes and tokens.
const (
	maxResponse = 64 << 10
	maxTokens   = 400
)

// question is a request for a chat completion. All of it but the message is fixed.
type question struct {
	Model     string         `json:"model"`
	Messages  []part         `json:"messages"`
	MaxTokens int            `json:"max_tokens"`
	Heat      int            `json:"temperature"`
	Stream    bool           `json:"stream"`
	Format    jsontext.Value `json:"response_format"`
}

type part struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const format = `{"type":"json_schema","json_schema":{"name":"opinion","strict":true,"schema":` + opinion.Schema + `}}`

// errElsewhere is the error for a server that is not on this machine.
var errElsewhere = errors.New("the server is on another machine, and ocip.judge.elsewhere is not set")

// transport reaches servers directly: no proxy of the environment sees the text. Without elsewhere,
// it connects only to the loopback, also if a name resolves to another address, and only to programs
// of this user and of root.
func (s *Server) transport() *http.Transport {
	d := &net.Dialer{}
	dial := d.DialContext
	if !s.Elsewhere {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			host, _, err := net.SplitHostPort(address)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return errElsewhere
			}
			return nil
		}
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if err := own(ctx, c, s.Timeout/2); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return c, nil
		}
	}
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxResponse}
}

// ask asks the model about a message, and returns its answer as it is, once it has the schema's form.
// It follows no redirect.
func (s *Server) ask(ctx context.Context, message string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	fenced, err := opinion.Fence(message, rand.Text())
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(&question{
		Model: s.Model, Messages: []part{{"system", opinion.Prompt}, {"user", fenced}}, MaxTokens: maxTokens, Format: jsontext.Value(format),
	})
	if err != nil {
		return "", fmt.Errorf("cannot encode the question: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(s.URL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	t := s.transport()
	defer t.CloseIdleConnections()
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := c.Do(r)
	if err != nil {
		return "", s.late(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the server answers with status %d", response.StatusCode)
	}
	said, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return "", s.late(ctx, err)
	case len(said) > maxResponse:
		return "", fmt.Errorf("the server's answer has more than %d bytes", maxResponse)
	}
	return content(said)
}

// late names the end of the time, which has many errors, and another user's server.
func (s *Server) late(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*ownerError](err); ok {
		return e
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", s.Timeout)
	}
	return err
}

// content returns the model's answer from a server's.
func content(said []byte) (string, error) {
	var completion struct {
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
			} `json:"message"`
			End string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(said, &completion); err != nil {
		return "", errors.New("the server's answer is no chat completion")
	}
	if len(completion.Choices) != 1 || completion.Choices[0].Message.Content == nil {
		return "", errors.New("the server's answer has not one choice with a content")
	}
	if choice := &completion.Choices[0]; choice.End != "stop" {
		return "", fmt.Errorf("the model's answer did not end by itself (finish_reason %.32q)", choice.End)
	}
	answer := *completion.Choices[0].Message.Content
	if _, err := opinion.Parse(answer); err != nil {
		return "", fmt.Errorf("the model's answer is not usable: %w", err)
	}
	return answer, nil
}
