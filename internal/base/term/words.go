package term

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// OneLine makes a message fit for one line of a terminal.
func OneLine(message string) string {
	return Printable(strings.ReplaceAll(strings.TrimSpace(message), "\n", "; "))
}

// Count returns a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Age returns a duration in its two largest units.
func Age(d time.Duration) string {
	switch d = max(0, d.Truncate(time.Second)); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// ShortAge returns a duration in its largest unit.
func ShortAge(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// When returns a moment in Unix milliseconds and its distance from now.
func When(milli int64, now time.Time) string {
	at := time.UnixMilli(milli)
	text := at.Local().Format(time.DateTime)
	if at.After(now) {
		return fmt.Sprintf("%s, in %s", text, Age(at.Sub(now)))
	}
	return fmt.Sprintf("%s, %s ago", text, Age(now.Sub(at)))
}

// Mebibytes returns a size in MiB, a large one in GiB.
func Mebibytes(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Round returns a duration in about three figures.
func Round(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}

// Thousands writes a number in groups of three digits.
func Thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
