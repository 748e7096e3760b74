package members

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Bounds are the content of a member's tags.
type Bounds struct {
	Required, Nonempty, Object, Null, Exact bool
	// Max and Keeps are 0 for no bound.
	Max, Keeps int
	// Ranged is set if Low and High bound a number.
	Ranged    bool
	Low, High int64
	Words     []string
	// Prefix is that of an id.
	Prefix string
	Form   *Form
	Doc    string
	// Each are the bounds of the items of a list, nil for none.
	Each *Bounds
}

// maxNames bounds a list of names, and the bytes of each.
const maxNames = 256

// Of reads the tags of a member. It panics if a tag has a word that is none: a test reads all.
func Of(f reflect.StructField) Bounds {
	b := read(f, "is")
	b.Doc = f.Tag.Get("doc")
	if each := read(f, "each"); f.Tag.Get("each") != "" {
		b.Each = &each
	}
	return b
}

// read reads one tag.
func read(f reflect.StructField, tag string) (b Bounds) {
	for word := range strings.FieldsSeq(f.Tag.Get(tag)) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "required":
			b.Required = true
		case "nonempty":
			b.Nonempty = true
		case "object":
			b.Object = true
		case "exact":
			b.Exact = true
		case "null":
			b.Null = true
		case "names":
			b.Max, b.Each = maxNames, &Bounds{Required: true, Max: maxNames}
		case "max":
			b.Max, err = strconv.Atoi(value)
		case "keeps":
			b.Keeps, err = strconv.Atoi(value)
		case "range":
			err = b.ranged(value)
		case "words":
			b.Words = strings.Split(value, "|")
		case "id":
			b.Prefix = value
		case "form":
			if b.Form = formOf(value); b.Form == nil {
				err = fmt.Errorf("no such form")
			}
		default:
			err = fmt.Errorf("no such bound")
		}
		if err != nil {
			panic(fmt.Sprintf("members: %s: %q: %v", f.Name, word, err))
		}
	}
	return b
}

// ranged reads a range.
func (b *Bounds) ranged(text string) (err error) {
	low, high, _ := strings.Cut(text, "..")
	b.Ranged, b.Low, b.High = true, math.MinInt64, math.MaxInt64
	if low != "" {
		b.Low, err = strconv.ParseInt(low, 10, 64)
	}
	if high != "" && err == nil {
		b.High, err = strconv.ParseInt(high, 10, 64)
	}
	return err
}

// none reports whether there are no bounds.
func (b *Bounds) none() bool {
	return !b.Required && !b.Nonempty && !b.Object && !b.Exact && b.Max == 0 && b.Keeps == 0 && !b.Ranged && b.Words == nil && b.Prefix == "" && b.Form == nil && (b.Each == nil || b.Each.none())
}
