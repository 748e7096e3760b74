package text

import (
	"slices"
	"testing"
)

func TestPosing(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []int
	}{
		{"shell:rival", nil},
		{"shell:rivaⅼ", []int{10}},       // a Roman numeral
		{"telegram:pаypal", []int{10}},   // a Cyrillic letter among Latin ones
		{"irc:сосо", []int{4, 6, 8, 10}}, // all of it Cyrillic, and reads as coco
		{"irc:ａｂ", []int{4, 7}},
		{"telegram:Иван", nil},
		{"telegram:José, Straße, Łódź", nil},
		{"line:ＡＢ株式会社", nil},
	} {
		if got := Posing(tc.text); !slices.Equal(got, tc.want) {
			t.Errorf("%q: characters pose at %v, want %v", tc.text, got, tc.want)
		}
	}
}
