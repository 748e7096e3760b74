package ocip

import (
	"testing"
)

// Any number is money unless it certainly is a time, a date, an ordinal or a count of things that
// cost nothing.
func TestOfMoney(t *testing.T) {
	for _, s := range []string{
		"$", "5 k", "5k", "500", "I promise 500", "five hundred", "half a grand", "５００", "€900", "900€", "nine hundred euros", "½", "500 pounds of flesh", "5,000", "5 000", "v 5", "900 pm",
		"two days at 300", "5 days at 90", "5 days' pay", "2 months of salary", "3 months rent", "3 Monate Miete", "EUR500", "r500", "s5", "25:00", "9:75 pm", "12:30k", "May 500", "32 May", "May 5 000",
		"page 5k", "page 5 thousand", "round 5,000", "version 1 500", "12 rooms", "5 seats", "500 credits", "5 shares", "20 %", "20%", "1.5", "3.50", "9 00", "9\u200b00", "9<b></b>00 pm",
		"neunhundert", "zweitausend", "mil reais", "cinco mil", "deux mille", "cento", "honderd", "tweehonderd", "百", "三千", "万", "500元", "５時", "at 3", "um 9", "5 (days)", "days 5", "5 m", "5 minutes k",
		"2026-13-40", "1/500/2026", "500. Deal", "I promise\n2. that", "1. one\n3. three", "1. 500", "1) 5k", "- 1.500", "1.", "0 500", "                    1. far in", "0.50", "0k", "lines 1-500k", "lines 5-5000", "5-500", "pay\n1 500. More",
		"5pm 900", "5 years of support", "5e", "5-10 days", "5 to 10", "3rd 900", "ten k", "tests at ten each", "forty-five apiece", "one bitcoin", "three months salary", "a dozen grand", "q5", "q500", "#14k", "# 14", "24/8", "12345 days", "3 weeks' wages",
	} {
		if !OfMoney([]Passage{{Text: s, Prose: true}}) {
			t.Errorf("%q is no money", s)
		}
	}
	for _, s := range []string{
		"", "I promise to be there at 3pm", "at 3 pm.", "3 p.m.", "at 15:30", "09:05:30", "15h30", "um 15 Uhr", "um 14.30 Uhr, versprochen", "om 9 uur", "à 9 heures", "alle ore 9:30", "às 9h30", "a las 9:00", "9 o'clock", "24/7",
		"on 5 May", "May 5", "May 5, 2026", "5 May 2026", "the 5th of May", "5. Mai 2026", "am 5. Mai", "5 de mayo", "5 de mayo de 2026", "le 5 juillet", "5 maggio 2026", "5 mei", "5 de junho", "2026-05-02", "5/2/2026", "02.05.2026", "in May 2026",
		"5月2日", "2026年5月2日", "明天3点", "15時", "3天", "2週間", "within 5 days", "in 30 minutes", "2 business days", "48h", "a 10 minute break", "a 10-minute break", "3 Tage", "in 2 Wochen", "dans 3 jours", "en 2 semanas", "fra 3 giorni", "binnen 2 weken", "em 5 dias",
		"the 2nd time", "on the 18th", "1st", "第5", "round 2", "version 1.2.3", "v1.2", "v2", "step 3", "page 12", "chapter 4.1", "Runde 2", "Seite 12", "página 4", "étape 3", "versione 2", "ronde 3", "rodada 4", "issue #14", "Q3", "line 42",
		"1. to look\n2. to answer", "I promise:\n\n  1) this\n  2) that\n\nand\n1. more", "(1) a task", "### 1. Given\n> 2. Wanted", "exit code: 0", "0 errors", "exit code 1", "lines 177-182", "pages 3–5", "on day 3", "12 rows",
		"3 people", "12 guests", "40 pages", "2 tests", "3 reviewers", "4 Personen", "2 personnes", "promise", "may we", "the second of them", "second", "one", "one of them", "ten of us", "each of the ten", "ten people each",
	} {
		if OfMoney([]Passage{{Text: s, Prose: true}}) {
			t.Errorf("%q is money", s)
		}
	}
	for _, p := range []Passage{
		{Member: "metadata.amount", Text: "5"}, {Member: "metadata.order.totalPrice", Text: "900"}, {Member: "metadata.x", Text: "$"}, {Member: "metadata.x", Text: "900USD"}, {Member: "metadata.Budget_EUR", Text: "7"},
	} {
		if !OfMoney([]Passage{p}) {
			t.Errorf("%+v is no money", p)
		}
	}
	for _, p := range []Passage{{Member: "metadata.id", Text: "900"}, {Member: "metadata.amount", Text: "none"}, {Member: "metadata.thread", Text: "2026-05-02T10:00:00Z"}} {
		if OfMoney([]Passage{p}) {
			t.Errorf("%+v is money", p)
		}
	}
}
