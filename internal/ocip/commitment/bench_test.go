package commitment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// prose is plain mail with one hit in a few hundred words.
const prose = `Hi Carol, thanks for the numbers from last week. The second table looks different from what Dana sent
on Tuesday, mostly because her export still counts the trial accounts. Could you check which of the two is current?
We compared the totals with the finance sheet and they differ by about 3 percent, which is close but not equal.
The migration itself went without trouble: twelve nodes are done, four remain, and the error rate did not move.
One more question about the report: is the chart on page 4 made from the raw data or from the cleaned set? `

const pleasant = prose + `If it helps, the deadline in the plan is the end of the month. `

func filled(with string, size int) string {
	return strings.Repeat(with, size/len(with)+1)[:size]
}

func texts() []struct{ name, unit string } {
	return []struct{ name, unit string }{
		{"prose", pleasant},
		{"no hit", prose},
		{"all hits", "book "},
		{"all cues", "I'll send. "},
		{"spaced out", "c o m m i t m e n t x "},
		{"near misses", "commitmen.guarante.schedulin-"},
		{"dots", "c.o.m.m.i.t.c.o.m.m."},
		{"signs", "c0mm!|!|!|!c|!@$"},
		{"zero width", "c\u200bo\u200bm\u200bm\u200bi\u200bx "},
		{"gap of zero width", "c.\u200b\u200b\u200b\u200b\u200b\u200b\u200b\u200b\u200b\u200b\u200b\u200b"},
		{"tags", "c<<<<bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},
		{"backticks", "book ` `` ``` ```` ````` `````` ```````"},
		{"dashes", "book\n-- \n"},
		{"headers", "On \nbook\n"},
		{"sums", "we pay 5 we pay 5k "},
		{"sums of nobody", "5k \u200b"},
		{"sums in apostrophes", "5k '"},
		{"sums granted and denied", "if 5k ok; "},
		{"one long number", "9,"},
		{"rules and empty lines", "-- \n\n\n\n\n\n\n\n\nbook\n"},
		{"references", "&#98;&#111;&#111;&#107;&#;&"},
		{"Cyrillic", "Встреча назначена на пятницу, сообщите если что. "},
		{"Spanish", "La reserva del hotel para el viernes ya está confirmada y el pago lo haremos mañana. "},
		{"foreign words in English", "The acuerdo and the termin of the reunion were the garantie. "},
		{"Han", "会议安排在星期五如有问题请联系我们"},
		{"one word", "agreement"},
		{"invalid", "\xe2\x80"},
		{"escapes", `\u0063\u006fm\x6d\n`},
		{"strokes", `\`},
		{"humps", "coMmIt"},
		{"terminal sequences", "co\x1b[m"},
		{"terminal sequences alone", "\x1b[1;31m"},
	}
}

func BenchmarkDetect(b *testing.B) {
	d := detector(b, Options{})
	for _, text := range texts() {
		for _, kib := range []int{1, 4, 64, 256} {
			input := filled(text.unit, kib<<10)
			b.Run(fmt.Sprintf("%s/%dKiB", text.name, kib), func(b *testing.B) {
				b.SetBytes(int64(len(input)))
				b.ReportAllocs()
				for b.Loop() {
					d.Detect(input)
				}
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		detector(b, Options{})
	}
}

// TestWorstTexts bounds the time for the worst texts, with much room for a slow machine: quadratic
// time takes minutes for 256 KiB.
func TestWorstTexts(t *testing.T) {
	const limit = 3 * time.Second
	for _, o := range []Options{{}, {Match: MatchSubstring}} {
		d := detector(t, o)
		for _, text := range texts() {
			input := filled(text.unit, 256<<10)
			begin := buildtest.Used(t)
			d.Detect(input)
			if took := buildtest.Used(t) - begin; took > limit {
				t.Errorf("%s: took %v", text.name, took)
			}
		}
	}
}

// TestPlainTextAllocatesNothing checks the fast path: a text without a hit is read in place.
func TestPlainTextAllocatesNothing(t *testing.T) {
	d := detector(t, Options{})
	for _, text := range []string{prose, "Встреча в пятницу", "猫在桌子上", "s c h e d u l x e, facebook, com-mi"} {
		if got := testing.AllocsPerRun(20, func() { d.Detect(text) }); got > 0 {
			t.Errorf("%.20q: %v allocations", text, got)
		}
	}
}
