package content

import (
	"slices"
	"strings"
	"testing"
)

// personal has, for each kind of personal data, texts with some, marked, and texts without.
var personal = map[string]struct{ some, none []string }{
	"email": {
		[]string{"write to \u00abada.l+x@acme-corp.co.uk\u00bb, please", "<\u00abada@acme.io\u00bb>", "mailto:\u00abada@acme.io\u00bb?subject=a", "\u00abADA@acme.io\u00bb."},
		[]string{"ada@example.com", "git@github.com:a/b", "noreply@acme.io and no-reply@acme.io", "lib@1.2.3", "@acme/app", "a@b", "ada@acme..io", "x@.io", "https://u:p@acme.io"},
	},
	"phone": {
		[]string{"\u00ab+49 30 901820\u00bb", "\u00ab+1 (555) 010-0199\u00bb,", "\u00ab+442079460958\u00bb", "phone \u00ab555-010-0199\u00bb", "phone: \u00ab+1 555-010-0199\u00bb", "Tel. \u00ab020 7946 0958\u00bb"},
		[]string{"+1 more", "a+12345678", "UTC+0200", "+0123456789", "order 555-010-0199", "+1234567890123456"},
	},
	"birth-date": {
		[]string{"born on \u00ab12 March 1980\u00bb", "DOB: \u00ab1980-03-12\u00bb", "geboren am \u00ab12.03.1980\u00bb", "n\u00e9e le \u00ab12 mars 1980\u00bb", "fecha de nacimiento: \u00ab12/03/1980\u00bb", "date of birth \u00abMarch 12, 1980\u00bb", "fecha de nacimiento \u00ab12 de marzo de 1980\u00bb"},
		[]string{"born in Rome", "due on 12 March 2026", "stubborn 12.03.1980", "born 99.99.1980", "DOB: 12345678", "born 1980"},
	},
	"passport": {
		[]string{"passport no. \u00abC01X00T47\u00bb", "Reisepass: \u00ab123456789\u00bb", "Reisepass Nr. \u00abC01X00T47\u00bb", "passeport \u00ab12AB34567\u00bb"},
		[]string{"passport control is at gate 12", "passport C0lower47", "ticket C01X00T47"},
	},
	"au-tfn":            {[]string{"TFN \u00ab123 456 782\u00bb"}, []string{"TFN 123 456 783", "123 456 782"}},
	"be-rrn":            {[]string{"rijksregisternummer \u00ab85.07.30-033.28\u00bb"}, []string{"rijksregisternummer 85.07.30-033.29", "85.07.30-033.28"}},
	"br-cpf":            {[]string{"CPF: \u00ab529.982.247-25\u00bb", "cpf \u00ab52998224725\u00bb"}, []string{"CPF: 529.982.247-26", "CPF 111.111.111-11"}},
	"ca-sin":            {[]string{"SIN \u00ab130 692 544\u00bb"}, []string{"SIN 130 692 545", "130 692 544"}},
	"ch-ahv":            {[]string{"AHV-Nr. \u00ab756.9217.0769.85\u00bb"}, []string{"AHV-Nr. 756.9217.0769.84", "756.9217.0769.85"}},
	"cn-resident-id":    {[]string{"\u8eab\u4efd\u8bc1\u53f7\u7801\uff1a\u00ab11010519491231002X\u00bb", "ID card \u00ab110105194912310038\u00bb"}, []string{"\u8eab\u4efd\u8bc1 110105194912310021", "11010519491231002X"}},
	"dk-cpr":            {[]string{"CPR-nr. \u00ab070761-4285\u00bb"}, []string{"CPR 991361-4285", "070761-4285"}},
	"fi-hetu":           {[]string{"hetu \u00ab131052-308T\u00bb", "HETU: \u00ab131052A308T\u00bb", "hetu \u00ab010594Y9032\u00bb"}, []string{"hetu 131052-308U", "131052-308T"}},
	"it-codice-fiscale": {[]string{"CF \u00abRSSMRA85T10A562S\u00bb"}, []string{"CF RSSMRA85T10A562T"}},
	"jp-my-number":      {[]string{"\u30de\u30a4\u30ca\u30f3\u30d0\u30fc \u00ab1234 5678 9018\u00bb"}, []string{"\u30de\u30a4\u30ca\u30f3\u30d0\u30fc 1234 5678 9019", "1234 5678 9018"}},
	"kr-rrn":            {[]string{"\uc8fc\ubbfc\ub4f1\ub85d\ubc88\ud638 \u00ab800101-1000008\u00bb"}, []string{"800101-1000000"}},
	"nl-bsn":            {[]string{"BSN \u00ab111222333\u00bb"}, []string{"BSN 111222334", "111222333"}},
	"no-fodselsnummer":  {[]string{"f\u00f8dselsnummer \u00ab13097200038\u00bb"}, []string{"f\u00f8dselsnummer 13097200000"}},
	"pl-pesel":          {[]string{"PESEL: \u00ab44051401359\u00bb"}, []string{"PESEL: 44051401358", "44051401359"}},
	"pt-nif":            {[]string{"NIF \u00ab123456789\u00bb", "contribuinte \u00ab123 456 789\u00bb"}, []string{"NIF 123456780", "123456789"}},
	"se-personnummer":   {[]string{"personnummer \u00ab811218-9876\u00bb", "personnummer \u00ab19811218-9876\u00bb"}, []string{"personnummer 811218-9875", "811218-9876"}},
	"sg-nric":           {[]string{"NRIC \u00abS1234567D\u00bb"}, []string{"NRIC S1234567E", "S1234567D"}},
	"th-id":             {[]string{"Thai ID \u00ab1101700230708\u00bb"}, []string{"Thai ID 1101700230700"}},
	"tr-kimlik":         {[]string{"T.C. Kimlik No: \u00ab10000000146\u00bb"}, []string{"kimlik 10000000147", "10000000146"}},
	"uk-nhs":            {[]string{"NHS number \u00ab943 476 5919\u00bb"}, []string{"NHS number 943 476 5918", "943 476 5919"}},
	"us-itin":           {[]string{"ITIN \u00ab912-70-1234\u00bb"}, []string{"ITIN 912-40-1234", "912-70-1234"}},
	"za-id":             {[]string{"SA ID \u00ab8001015009087\u00bb"}, []string{"SA ID 8001015009086", "8001015009087"}},
}

// TestPersonal checks every kind of personal data with its examples, in each mode.
func TestPersonal(t *testing.T) {
	for _, name := range Personal() {
		e, ok := personal[name]
		if !ok || len(e.some) == 0 || len(e.none) == 0 {
			t.Errorf("%s has no examples", name)
		}
		rule := personalPrefix + name
		for _, mode := range append(PersonalModes(), "") {
			o := Options{Personal: map[string]string{}}
			for _, other := range Personal() {
				o.Personal[other] = Off
			}
			if o.Personal[name] = mode; mode == "" {
				delete(o.Personal, name)
			}
			d := made(t, o)
			for _, text := range e.some {
				plain, start, end := marked(t, text)
				var want []Finding
				switch mode {
				case Off:
				case Shadow, "":
					want = []Finding{{Rule: rule, Level: Public, Start: start, End: end, Shadow: true}}
				default:
					want = []Finding{{Rule: rule, Level: mode, Start: start, End: end}}
				}
				if got := d.Detect(plain); !slices.Equal(got, want) {
					t.Errorf("%s, %q: got %v in %q, want %v", name, mode, got, plain, want)
				}
			}
			for _, text := range e.none {
				for _, f := range d.Detect(text) {
					if f.Rule == rule {
						t.Errorf("%s, %q: got %v in %q", name, mode, f, text)
					}
				}
			}
		}
	}
	for _, o := range []map[string]string{{"e-mail": Shadow}, {"email": "secret"}} {
		if _, err := New(Options{Personal: o}); err == nil || !strings.Contains(err.Error(), "want one of") {
			t.Errorf("%v: got %v", o, err)
		}
	}
	if got := Highest(made(t, Options{}).Detect("ada@acme.io, +49 30 901820")); got != Public {
		t.Errorf("in shadow it is %s", got)
	}
}
