// Package logtext writes the daemon's log for people at a terminal: one line for each entry, in
// colour if the screen has it. Text from others in an entry cannot steer the terminal.
package logtext

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// New returns an encoder for a core of zap.
func New(p term.Palette) zapcore.Encoder {
	return &encoder{MapObjectEncoder: zapcore.NewMapObjectEncoder(), palette: p, pool: buffer.NewPool()}
}

// encoder has the fields that a logger adds to each of its entries in the map.
type encoder struct {
	*zapcore.MapObjectEncoder
	palette term.Palette
	pool    buffer.Pool
}

// Clone is part of [zapcore.Encoder].
func (e *encoder) Clone() zapcore.Encoder {
	with := zapcore.NewMapObjectEncoder()
	maps.Copy(with.Fields, e.Fields)
	return &encoder{MapObjectEncoder: with, palette: e.palette, pool: e.pool}
}

// EncodeEntry is part of [zapcore.Encoder]: the time of day, the level, the logger's name, the
// message, and the fields.
func (e *encoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line := e.pool.Get()
	line.AppendString(e.palette.Paint(term.Dim, entry.Time.Local().Format("15:04:05")))
	line.AppendByte(' ')
	line.AppendString(e.palette.Paint(levelColour(entry.Level), fmt.Sprintf("%-5s", entry.Level.CapitalString())))
	line.AppendByte(' ')
	if entry.LoggerName != "" {
		line.AppendString(e.palette.Paint(term.Dim, term.OneLine(entry.LoggerName)+": "))
	}
	line.AppendString(term.OneLine(entry.Message))
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		e.field(line, name, e.Fields[name])
	}
	for _, f := range fields {
		one := zapcore.NewMapObjectEncoder()
		f.AddTo(one)
		for _, name := range slices.Sorted(maps.Keys(one.Fields)) { // an error can have two
			e.field(line, name, one.Fields[name])
		}
	}
	line.AppendByte('\n')
	return line, nil
}

func (e *encoder) field(line *buffer.Buffer, name string, value any) {
	text := term.OneLine(fmt.Sprint(value))
	if strings.ContainsAny(text, " =\"") || text == "" {
		text = `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
	}
	line.AppendString("  ")
	line.AppendString(e.palette.Paint(term.Dim, term.OneLine(name)+"="))
	line.AppendString(text)
}

func levelColour(l zapcore.Level) term.Colour {
	switch {
	case l >= zapcore.ErrorLevel:
		return term.Red
	case l == zapcore.WarnLevel:
		return term.Yellow
	case l == zapcore.InfoLevel:
		return term.Green
	}
	return term.Dim
}
