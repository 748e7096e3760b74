package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/config/keypath"
)

// Size is a number of bytes. It is written as a whole number, or as one with a unit: 4096,
// 64KB, 1MiB.
type Size int

var sizeType = reflect.TypeFor[Size]()

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int
}{
	{"TiB", 1 << 40},
	{"TB", 1e12},
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"KB", 1e3},
	{"B", 1},
}

// parseSize reads a size. Units may be in small letters, and behind a blank.
func parseSize(text string) (Size, error) {
	number, unit := strings.TrimSpace(text), 1
	for _, u := range sizeUnits {
		if at := len(number) - len(u.name); at > 0 && strings.EqualFold(number[at:], u.name) {
			number, unit = strings.TrimRight(number[:at], " "), u.bytes
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n > math.MaxInt/unit || n < math.MinInt/unit {
		return 0, fmt.Errorf("cannot read %q as a size", text)
	}
	return Size(n * unit), nil
}

// String is the size in the largest unit of which it is a multiple: 64MiB.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if n := int(s) / u.bytes; n != 0 && int(s)%u.bytes == 0 && u.bytes > 1 {
			return strconv.Itoa(n) + u.name
		}
	}
	return strconv.Itoa(int(s))
}

// plain is the size as YAML and JSON have it: as text with a unit, or as a number.
func (s Size) plain() any {
	if text := s.String(); text != strconv.Itoa(int(s)) {
		return text
	}
	return int(s)
}

// MarshalYAML writes the size as people read it.
func (s Size) MarshalYAML() (any, error) { return s.plain(), nil }

// size reports a size outside its bounds; most is zero for none.
func (p *problems) size(key keypath.Path, s, least, most Size) {
	switch {
	case most == 0 && s < least:
		p.bad(key, "want at least %s, got %s", least, s)
	case most > 0 && (s < least || s > most):
		p.bad(key, "want %s to %s, got %s", least, most, s)
	}
}
