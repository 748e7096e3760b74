package task

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rivo/uniseg"
	"golang.org/x/text/unicode/norm"
)

// language is what the reader of specs knows of one language. The lists separate their entries by
// commas, all in small letters.
type language struct {
	// headings are the names of a spec's fields, in the order of [fieldNames].
	headings [7]string
	// vague are words that say that something is good without saying how one could tell, open are
	// words that leave a decision for later, and none is an entry that says that there is none.
	vague, open, none string
	// joined is set for a language that writes no blanks between words.
	joined bool
}

// fieldNames are the fields in the order of [language.headings].
func fieldNames() [7]string {
	return [7]string{"goal", "scope_in", "scope_out", "inputs", "outputs", "acceptance_criteria", "risks"}
}

// languages are English and the languages that the detectors of commitments know. A spec may mix
// them.
var languages = [...]language{
	{ // English
		headings: [7]string{
			"goal,goals,objective,objectives", "scope,scope in,in scope", "scope out,out of scope,non goals,nongoals", "inputs,input", "outputs,output",
			"acceptance criteria,acceptance", "risks,risk",
		},
		vague: "works,correct,correctly,properly,good,fast,robust,as expected,etc", open: "tbd", none: "none,nothing,n/a,na",
	},
	{ // German
		headings: [7]string{
			"ziel,ziele", "umfang,im umfang", "nicht ziele,nichtziele,nicht im umfang,außerhalb des umfangs", "eingaben,eingabe", "ausgaben,ausgabe,ergebnisse",
			"abnahmekriterien,akzeptanzkriterien", "risiken,risiko",
		},
		vague: "funktioniert,funktionieren,korrekt,richtig,ordentlich,gut,schnell,wie erwartet,usw", open: "noch offen,noch zu klären", none: "keine,keines,nichts",
	},
	{ // Spanish
		headings: [7]string{
			"objetivo,objetivos", "alcance,dentro del alcance", "fuera de alcance,fuera del alcance,no objetivos", "entradas,entrada", "salidas,salida",
			"criterios de aceptación", "riesgos,riesgo",
		},
		vague: "funciona,funcionan,correcto,correcta,correctamente,bien,bueno,buena,rápido,rápida,robusto,como se espera", open: "por definir,por determinar",
		none: "ninguno,ninguna,nada",
	},
	{ // French
		headings: [7]string{
			"objectif,objectifs,but,buts", "périmètre,portée", "hors périmètre,hors de portée,non objectifs", "entrées,entrée", "sorties,sortie",
			"critères d'acceptation,critères d'acceptance", "risques,risque",
		},
		vague: "fonctionne,fonctionnent,correct,correcte,correctement,bien,bon,bonne,rapide,robuste,comme prévu,comme attendu", open: "à définir,à déterminer",
		none: "aucun,aucune,rien,néant",
	},
	{ // Italian
		headings: [7]string{
			"obiettivo,obiettivi", "ambito,portata", "fuori ambito,fuori dall'ambito,non obiettivi", "ingressi,ingresso", "uscite,uscita",
			"criteri di accettazione", "rischi,rischio",
		},
		vague: "funziona,funzionano,corretto,corretta,correttamente,bene,buono,buona,veloce,robusto,come previsto,ecc", open: "da definire,da decidere",
		none: "nessuno,nessuna,niente",
	},
	{ // Japanese
		headings: [7]string{"目標,目的,ゴール", "範囲,スコープ", "非目標,対象外,範囲外,スコープ外", "入力", "出力,成果物", "受け入れ基準,受入基準,受け入れ条件,受入条件", "リスク"},
		vague:    "正しく,正確に,適切に,問題なく,きちんと,うまく,良好,良い,よい,高速,速い,堅牢,期待通り,期待どおり,など", open: "未定,要検討,後で決め", none: "なし,無し,無,特になし",
		joined: true,
	},
	{ // Dutch
		headings: [7]string{
			"doel,doelen", "reikwijdte,bereik,binnen scope", "buiten scope,buiten bereik,niet doelen", "invoer", "uitvoer", "acceptatiecriteria", "risico's,risico",
		},
		vague: "werkt,werken,correct,juist,goed,netjes,snel,robuust,zoals verwacht,enz", open: "nog te bepalen,nog open", none: "geen,niets",
	},
	{ // Portuguese
		headings: [7]string{
			"objetivo,objetivos", "escopo,âmbito,dentro do escopo", "fora do escopo,fora de escopo,fora do âmbito,não objetivos", "entradas,entrada", "saídas,saída",
			"critérios de aceitação,critérios de aceite", "riscos,risco",
		},
		vague: "funciona,funcionam,correto,correta,corretamente,bem,bom,boa,rápido,rápida,robusto,como esperado", open: "a definir,por definir", none: "nenhum,nenhuma,nada",
	},
	{ // Chinese
		headings: [7]string{
			"目标,目標,目的", "范围,範圍,范围包含,範圍包含,范围内,範圍內", "非目标,非目標,范围排除,範圍排除,范围外,範圍外,不在范围内", "输入,輸入", "输出,輸出",
			"验收标准,驗收標準,验收条件,驗收條件", "风险,風險",
		},
		vague: "正常工作,正常运行,正常運行,正常,正确,正確,良好,优秀,優秀,很好,完善,合理,适当,適當,快速,很快,健壮,健壯,稳定,穩定,符合预期,符合預期,无误,無誤,等等", open: "待定,待确定,待確定,待议,待議,以后再定",
		none: "无,無,没有,沒有", joined: true,
	},
}

// words are the words of the languages in the forms in which the reader of specs looks for them.
type words struct {
	// headings are the names of fields as headings have them, and none the entries that say that
	// there is none.
	headings map[string]string
	none     map[string]bool
	// vague and open find the words of their kind.
	vague, open finder
}

// finder finds one of many words. A change of a task asks about each criterion, and the expression
// takes many times as long as a look whether any of the words is there at all.
type finder struct {
	words      []string
	expression *regexp.Regexp
}

// find returns a text's first word, with the characters around it, or "".
func (f *finder) find(text string) string {
	lower := strings.ToLower(text)
	if !slices.ContainsFunc(f.words, func(word string) bool { return strings.Contains(lower, word) }) {
		return ""
	}
	return f.expression.FindString(text)
}

// known are the words of all languages.
var known = sync.OnceValue(func() *words {
	w := &words{headings: make(map[string]string), none: map[string]bool{"": true}}
	var vague, open []string
	for _, l := range languages {
		for i, names := range l.headings {
			for name := range strings.SplitSeq(names, ",") {
				w.headings[name] = fieldNames()[i]
			}
		}
		for entry := range strings.SplitSeq(l.none, ",") {
			w.none[entry] = true
		}
		vague, open = append(vague, alternatives(l.vague, l.joined)...), append(open, alternatives(l.open, l.joined)...)
		w.vague.words, w.open.words = append(w.vague.words, strings.Split(l.vague, ",")...), append(w.open.words, strings.Split(l.open, ",")...)
	}
	w.vague.expression = regexp.MustCompile("(?i)" + strings.Join(vague, "|"))
	// Spanish and Portuguese have a word todo.
	w.open.words = append(w.open.words, "todo", "???")
	w.open.expression = regexp.MustCompile(`\bTODO\b|(?i:\btodo\s*:|\?{3}|` + strings.Join(open, "|") + `)`)
	return w
})

// alternatives are the words of a list as parts of a regular expression: as whole words, unless the
// language writes no blanks.
func alternatives(list string, joined bool) []string {
	parts := strings.Split(list, ",")
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	all := strings.Join(parts, "|")
	if joined {
		return []string{all}
	}
	return []string{`(?:^|[^\p{L}\p{N}_])(?:` + all + `)(?:$|[^\p{L}\p{N}_])`}
}

// checkable matches the parts that make a criterion checkable: a digit, a number with a unit, quoted
// or code text, or a path.
var checkable = regexp.MustCompile(`\p{Nd}|[二两兩三四五六七八九十百千万萬亿億][个個张張条條行次秒天页頁种種项項位列倍]|[二两兩三四五六七八九十百千万萬亿億](?:分钟|分鐘|小时|小時|毫秒|字节)|` +
	"`[^`]+`|\"[^\"]+\"|“[^”]+”|„[^“”]+[“”]|'[^']{2,}'|«[^»]+»|»[^«]+«|‹[^›]+›|「[^」]+」|『[^』]+』|《[^》]+》|[\\w.-]*/[\\w.-]+|[\\p{L}\\p{N}_-]+\\.[a-z]{1,4}\\b")

// The least size of a criterion: different words, and columns of a terminal. A character of Chinese,
// Japanese or Korean takes two columns, and in scripts without blanks each counts as a word.
const (
	leastWords   = 3
	leastColumns = 15
)

// short reports whether a text has too few words or columns to say what is checked.
func short(s string) bool {
	columns, state := 0, -1
	seen := make(map[string]bool)
	for len(s) > 0 && (columns < leastColumns || len(seen) < leastWords) {
		var word string
		word, s, state = uniseg.FirstWordInString(s, state)
		columns += uniseg.StringWidth(word)
		if strings.ContainsFunc(word, letterOrDigit) {
			seen[strings.ToLower(word)] = true
		}
	}
	return columns < leastColumns || len(seen) < leastWords
}

// canonical is a text of which forms of one character that look alike are one: a full-width colon is
// a colon, and a letter with an accent is one character.
func canonical(s string) string { return norm.NFKC.String(s) }
