package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/mail"
	"net/smtp"
	"os"
	"slices"
	"strings"
	"time"
)

const patience = 30 * time.Second

// settings are the variables that a network needs.
var settings = map[string][]string{"telegram": {"TELEGRAM_TOKEN"}, "slack": {"SLACK_TOKEN"}, "irc": {"IRC_SERVER"}, "email": {"SMTP_SERVER", "MAIL_FROM"}}

// network sends by Telegram, Slack, IRC or e-mail. The bot calls it with --networks. An error
// means that nothing was sent.
func network(session, content string) error {
	channel, target, _ := strings.Cut(session, ":")
	for _, name := range settings[channel] {
		if os.Getenv(name) == "" {
			return fmt.Errorf("not sent: the variable %s is not set", name)
		}
	}
	var err error
	switch channel {
	case "telegram":
		url := cmp.Or(os.Getenv("TELEGRAM_API"), "https://api.telegram.org") + "/bot" + os.Getenv("TELEGRAM_TOKEN") + "/sendMessage"
		err = post(url, "", map[string]string{"chat_id": target, "text": content})
	case "slack":
		url := cmp.Or(os.Getenv("SLACK_API"), "https://slack.com/api") + "/chat.postMessage"
		err = post(url, os.Getenv("SLACK_TOKEN"), map[string]string{"channel": target, "text": content})
	case "irc":
		err = irc(target, content)
	case "email":
		err = email(target, content)
	default:
		err = fmt.Errorf("not sent: there is no network %q", channel)
	}
	if err != nil {
		return err
	}
	return say(session, content)
}

func post(url, token string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text)) //nolint:noctx,gosec // the client has a timeout; the address is the configured one
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request) //nolint:gosec // the same address
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var result struct{ OK bool }
	if err := json.Unmarshal(said, &result); err != nil || !result.OK {
		return fmt.Errorf("not sent: %s", said)
	}
	return nil
}

func irc(target, text string) error {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) // a line of the text is no command of its own
	if slices.ContainsFunc(parts, func(line string) bool { return len(line) > 400 }) {
		return errors.New("not sent: a line is too long for IRC")
	}
	link, err := net.DialTimeout("tcp", os.Getenv("IRC_SERVER"), patience) //nolint:gosec // the configured server
	if err != nil {
		return err
	}
	defer link.Close()
	_ = link.SetDeadline(time.Now().Add(patience))
	nick := cmp.Or(os.Getenv("IRC_NICK"), "bot")
	fmt.Fprintf(link, "NICK %s\r\nUSER %s 0 * :%s\r\n", nick, nick, nick)
	welcome := false
	lines := bufio.NewScanner(link)
	for lines.Scan() {
		words := append(strings.Fields(lines.Text()), "", "")
		switch {
		case words[0] == "PING":
			fmt.Fprintf(link, "PONG %s\r\n", words[1])
		case words[1] == "001":
			welcome = true
			for _, part := range parts {
				fmt.Fprintf(link, "PRIVMSG %s :%s\r\n", target, part)
			}
			fmt.Fprint(link, "QUIT\r\n")
		case slices.Contains([]string{"401", "403", "404", "407", "412"}, words[1]): // no such target, or not for us
			return fmt.Errorf("not sent: %s", lines.Text())
		}
	}
	if !welcome {
		return errors.Join(errors.New("not sent: the server has closed the connection"), lines.Err())
	}
	return lines.Err()
}

func email(address, text string) error {
	from := os.Getenv("MAIL_FROM")
	to, err := mail.ParseAddress(address)
	if err != nil {
		return fmt.Errorf("not sent: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "From: %s\r\nTo: %s\r\nSubject: A message\r\nMIME-Version: 1.0\r\n", from, to.Address)
	fmt.Fprint(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
	body := quotedprintable.NewWriter(&b)
	if _, err := io.WriteString(body, text); err != nil {
		return err
	}
	if err := body.Close(); err != nil {
		return err
	}
	return smtp.SendMail(os.Getenv("SMTP_SERVER"), nil, from, []string{to.Address}, b.Bytes()) //nolint:gosec // the address was parsed
}
