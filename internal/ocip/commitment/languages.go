package commitment

import (
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// The families of other languages, by their codes (ISO 639): the equivalents of the thirteen
// keywords, and the cues. They apply if the text is in the language.
const (
	German     = "de"
	Spanish    = "es"
	French     = "fr"
	Italian    = "it"
	Japanese   = "ja"
	Dutch      = "nl"
	Portuguese = "pt"
	Chinese    = "zh"
)

// language is a language with the Latin alphabet.
type language struct {
	family string
	// common are words that distinguish the language from others.
	common string
	// words are stems, each with its endings after a bar, if it has any; a dot is the empty ending.
	// Words that are also English are not here.
	words string
	// phrases are cues, separated by commas.
	phrases string
}

var languages = [...]language{
	{
		German,
		"der die das und ist nicht ich sie wir ihr ein eine einen einem dem den des mit für auf von zu zum zur im am bis um bei wird werden haben hat kann" +
			" bitte danke ja nein auch noch uhr nach aber oder wie dass habe bin sind dein deine ihre ihnen dir mir uns euch morgen heute gerne gern freitag montag" +
			" dienstag mittwoch donnerstag samstag sonntag tag woche monat",
		"termin|. e en es s; terminier|en e t te ten ung; vereinbar|en e t te ten ung ungen; verabred|en e et ete ung ungen; besprechung|. en; sitzung|. en;" +
			" treffen|. s; einplanen|.; eingeplant|. e en; geplant|. e en er es; zustimm|en e t te ten ung; zugestimmt; einverstanden; genehmig|en e t te ten te ung ungen;" +
			" bewillig|en e t te ten ung; freigeb|en e; freigegeben|. e en; freigabe|. n; zuteil|en e t te ung ungen; zugeteilt|. e en; zuweis|en e ung ungen;" +
			" zugewiesen|. e en; reservier|en e t te ten ung ungen; verpflicht|en e et ete eten ung ungen; bestätig|en e t te ten ung ungen; buch|en e te ten ung ungen;" +
			" gebucht|. e en; frist|. en; stichtag|. e; versprech|en e t; verspricht|.; versprochen|. e en; versprach|.; zusag|en e t te ten; zusage|. n; zugesagt|. e en;" +
			" zusicher|n e t te ung ungen; zugesichert|. e en; garantier|en e t te ten; garantie|. n; gewährleist|en e et ete ung; bestell|en e t te ung ungen;" +
			" abgemacht|.; beauftrag|en e t te ten",
		"ich werde,wir werden,werde ich,werden wir,ich schicke,ich sende,ich liefere,ich zahle,ich bezahle,wir liefern,wir zahlen,wir bezahlen,wir schicken,wir senden," +
			"ich kümmere mich,wir kümmern uns,ich übernehme,wir übernehmen,ich erledige,wir erledigen,ich mache das,wird gemacht,wird erledigt,geht klar,geht in ordnung," +
			"passt mir,passt uns,passt für mich,passt für uns,klingt gut,machen wir so,so machen wir es,ich nehme an,wir nehmen an,nehme ich an,nehmen wir an,ich bin dabei," +
			"wir sind dabei,sie haben mein wort,du hast mein wort,ich schwöre,ich gelobe,ich stimme zu,wir stimmen zu,stimme ich zu,hiermit,kein problem,in ordnung,sie bekommen,sie erhalten,du bekommst,du kriegst,wird erstattet,wird storniert,wird geschickt,ist storniert,ist reserviert,ist notiert,ist erledigt,ist gebucht,gebongt,schicke ich,schicken wir,sende ich,senden wir,liefere ich,liefern wir,zahle ich,zahlen wir,bezahle ich,bezahlen wir,ich überweise,überweise ich," +
			"wir überweisen,überweisen wir,bringe ich,wir bringen,bringen wir,ich hole,hole ich,wir holen,holen wir,ich komme,komme ich,wir kommen,kommen wir," +
			"ich gebe,gebe ich,wir geben,geben wir,wir machen,übernehme ich,übernehmen wir,erledige ich,erledigen wir,ich besorge,besorge ich,wir besorgen," +
			"besorgen wir,ich erstatte,erstatte ich,erstatten wir,ich storniere,storniere ich,stornieren wir,ich bestelle,bestelle ich,wir bestellen,bestellen wir," +
			"ich kaufe,kaufe ich,wir kaufen,kaufen wir,ich verkaufe,verkaufe ich,wir verkaufen,verkaufen wir,ich unterschreibe,unterschreibe ich,wir unterschreiben," +
			"unterschreiben wir,ich akzeptiere,akzeptiere ich,wir akzeptieren,akzeptieren wir,ich organisiere,organisiere ich,wir organisieren,organisieren wir," +
			"kümmere ich,kümmern wir,ich richte,richte ich,wir richten,richten wir,ich lege,lege ich,wir legen,legen wir,den nehmen wir,die nehmen wir,das nehmen wir,den nehme ich,die nehme ich,das nehme ich,mache ich,mach ich,wird geliefert,wir erstatten,wir stornieren,ich bringe",
	},
	{
		Spanish,
		"el la los las y es no que de en un una por para con se lo le su mi tu al del está como más pero si sí gracias favor hola usted te me nos ya muy mañana hoy" +
			" esta este eso bien lunes martes miércoles jueves viernes sábado domingo semana son hay qué cuando",
		"reserv|ar o as amos an é ó aron ado ada ados adas aré ará aremos ación aciones; reserva|. s; confirm|ar o a amos an é ó ado ada ados adas aré ará aremos ación aciones;" +
			" agend|ar o é ado ada aré aremos; programado|. s; programada|. s; programar|. é emos; reunión; reuniones; cita|. s; acord|ar amos ado ada é aron; acuerdo|. s;" +
			" aprob|ar ado ada amos é ó aré aremos ación; aprueb|o a an; asign|ar o a é ó ado ada ados adas aré aremos ación aciones; compromet|er ido ida idos emos o í eré;" +
			" compromiso|. s; promet|er o e emos í ió ido ida eré eremos; promesa|. s; garanti|zar zo za zamos zado zada zaré zaremos; garantía|. s; plazo|. s;" +
			" contrat|ar o é ado ada aré aremos; enviamos; mandamos; pagamos; entrego; entregamos; llevaré; llevaremos; traeré; traeremos; compraré; compraremos;" +
			" venderé; venderemos; firmaré; firmaremos; firmamos; haré; haremos; daré; daremos; cubriré; cubriremos; cubrimos; devolveré; devolveremos; devolvemos; reembolsaremos; reembolsamos;" +
			" cancelado|. s; cancelada|. s; recogeré; iré; iremos; quedamos",
		"voy a enviar,voy a pagar,voy a mandar,vamos a enviar,vamos a pagar,voy a hacer,voy a entregar,vamos a entregar,lo haré,lo haremos,enviaré,enviaremos,mandaré," +
			"pagaré,pagaremos,entregaré,entregaremos,me encargo,nos encargamos,me parece bien,nos parece bien,de acuerdo,trato hecho,me viene bien,nos viene bien," +
			"cuenta conmigo,cuente conmigo,cuente con nosotros,cuenta con nosotros,acepto,aceptamos,lo juro,le juro,te juro,doy mi palabra,por la presente,cuenta con ello,dalo por hecho," +
			"delo por hecho,sin problema,estaré allí,ahí estaré,queda cambiado,queda cancelado,queda anulado,queda hecho,ha sido cancelado,ha sido cancelada,hemos cobrado,hemos cancelado",
	},
	{
		French,
		"le la les et est ne pas que de des du un une pour avec sur dans je vous nous il elle ce cette en au aux mon votre notre vos nos merci bonjour oui à qui où mais" +
			" si plus demain se me te lundi mardi mercredi jeudi vendredi samedi dimanche semaine sera bien c'est j'ai être avons suis",
		"réserv|er e es ons ez ent é ée és ées erai era erons ation ations; confirm|er e ons ez ent é ée és ées erai era erons ation ations; planifi|er e ons ez é ée és ées erai erons;" +
			" programm|er é ée és ons erai; réunion|. s; rendezvous; accept|er e ons ez é ée erai erons; approuv|er e ons ez é ée és ées erai erons; approbation|. s;" +
			" allou|er e ons é ée és; attribu|er e ons é ée és ées; engag|er eons ez é ée és; promet|s t tons tez tre trai trons; promis; promesse|. s; garanti|r s t ssons e es;" +
			" échéance|. s; délai|. s; command|er e ons ez é ée erai; enverrai; enverrons; apporterai; apporterons; paierai; livrerai; donnerai; donnerons; signerai; signerons; ferai; ferons; rembourserai; rembourserons;" +
			" rembours|ons é ée; viendrai; viendrons; passerai; passerons; achèterai; achèterons; vendrai; vendrons; prendrai; prendrons; serai; serons; annulé|. e es",
		"je vais vous,je vais t'envoyer,je vais te,nous allons vous,j'enverrai,je vous envoie,je t'envoie,je vous enverrai,je t'enverrai,nous enverrons,nous vous enverrons,je paierai,nous paierons," +
			"je payerai,je m'en occupe,nous nous en occupons,on s'en occupe,je m'en charge,nous nous en chargeons,d'accord,entendu,ça marche,marché conclu,ça me va,ça nous va," +
			"cela me convient,ça me convient,cela nous convient,me convient,c'est bon pour moi,comptez sur moi,compte sur moi,comptez sur nous,je m'engage,nous nous engageons," +
			"j'accepte,je livrerai,nous livrerons,je le ferai,nous le ferons,je jure,parole d'honneur,par la présente,sera livré,sera remboursé,nous vous rembourserons,nous vous livrerons,nous vous ferons,je passerai,je viendrai,j'apporterai,je ferai,nous ferons,a été annulé,a été annulée,pas de problème,date limite,je serai là",
	},
	{
		Italian,
		"il lo la i gli le e è non che di del della dei delle un una per con su nel nella alla al da dal ci si mi ti vi grazie ciao buongiorno sono ho ha hai favore" +
			" domani oggi questo questa come ma anche più se lunedì martedì mercoledì giovedì venerdì sabato domenica settimana bene molto sarà",
		"prenot|are o a iamo ate ano ato ata ati erò erà eremo azione azioni; conferm|are o a iamo ate ano ato ata ati erò eremo; programm|are ato ata iamo erò; pianific|are o ato ata ati hiamo herò;" +
			" riunion|e i; appuntament|o i; accordo; accordi; concord|are ato ata iamo; approv|are o a iamo ato ata ati erò eremo azione; assegn|are o a iamo ato ata ati ate erò eremo azione;" +
			" alloc|are ato ata erò; riserv|are o ato ata ati; impegn|o i iamo arsi ato erò; promett|o iamo ere erò e; promess|o a e; garant|ire isco isce iamo ito ita irò iremo; garanzi|a e; scadenz|a e; inviamo; mandiamo; paghiamo; consegniamo; portiamo; porterò; porteremo; firmiamo; firmerò; firmeremo; faremo; farò; darò; daremo; copriamo; copriremo; rimborsiamo;" +
			" rimborseremo; annulliamo; annullat|o a i e; verrò; verremo; comprerò; venderò; passerò; prenderò; prenderemo",
		"invierò,invieremo,manderò,manderemo,ti mando,le mando,vi mando,pagherò,pagheremo,consegnerò,consegneremo,lo farò,lo faremo,ci penso io,ci pensiamo noi,me ne occupo,ce ne occupiamo," +
			"va bene,mi va bene,ci va bene,d'accordo,affare fatto,ci sto,ci stiamo,accetto,accettiamo,conta su di me,conti su di me,conti su di noi,lo giuro,ti giuro,parola mia,con la presente," +
			"ci sarò,ci saremo,è stato annullato,è stata annullata,rimborseremo,porterò,verrò,nessun problema,ordineremo,ordinerò",
	},
	{
		Dutch,
		"de het een en is niet dat van in op te met voor ik je we wij u zijn er aan om bij ook naar maar of wat dan graag bedankt mijn uw ons onze morgen vandaag dag" +
			" deze dit heb heeft kan wordt worden als nog wel hallo maandag dinsdag woensdag donderdag vrijdag zaterdag zondag week uur",
		"reserveren; reserveer|. t de; gereserveerd|. e; reservering|. en; bevestig|. en t de d ing ingen; inplannen; ingepland|. e; gepland|. e; vergadering|. en; afspraak; afspraken; afspreken;" +
			" afgesproken; akkoord; goedkeur|en t ing; goedgekeurd|. e; toewijz|en ing; toegewezen; toegekend|. e; beloof|. t de; beloofd|.; beloven; belofte|. n; garandeer|. t de; garanderen; gegarandeerd|. e;" +
			" garantie|. s; boeking|. en; geboekt|. e; boeken; verplicht|en ing ingen; toezegg|en ing ingen; toegezegd|.; bestell|en ing ingen; besteld|. e; termijn|. en; toestemming",
		"ik zal,wij zullen,we zullen,zal ik,zullen we u,zullen wij u,ik stuur,wij sturen,we sturen,ik betaal,wij betalen,we betalen,ik lever,wij leveren,we leveren,ik regel het,wij regelen het,ik zorg voor,ik zorg dat," +
			"wij zorgen voor,we zorgen voor,we zorgen dat,ik ga akkoord,wij gaan akkoord,we gaan akkoord,dat is goed,prima voor mij,klinkt goed,komt in orde,komt goed,komt voor elkaar,doe ik,doen we,doen wij," +
			"ik doe mee,ik accepteer,wij accepteren,we accepteren,erewoord,hierbij bestellen,u krijgt,je krijgt,u ontvangt,je ontvangt,is gereserveerd,is geregeld,staat genoteerd,stuur ik,sturen wij,sturen we,betaal ik,betalen wij,betalen we,lever ik,leveren wij,leveren we,breng ik,wij brengen,brengen wij,we brengen,brengen we," +
			"ik haal,haal ik,wij halen,halen wij,we halen,halen we,kom ik,komen wij,we komen,komen we,ik geef,geef ik,wij geven,geven wij,we geven,geven we,ik maak," +
			"maak ik,wij maken,maken wij,we maken,maken we,ik neem,neem ik,wij nemen,nemen wij,we nemen,nemen we,ik regel,regel ik,wij regelen,regelen wij," +
			"we regelen,regelen we,ik bestel,bestel ik,wij bestellen,bestellen wij,we bestellen,bestellen we,ik koop,koop ik,wij kopen,kopen wij,we kopen,kopen we," +
			"ik verkoop,verkoop ik,wij verkopen,verkopen wij,we verkopen,verkopen we,ik teken,teken ik,wij tekenen,tekenen wij,we tekenen,tekenen we,ik doe," +
			"wij doen,we doen,ik boek,boek ik,wij boeken,boeken wij,we boeken,boeken we,ik annuleer,annuleer ik,wij annuleren,annuleren wij,we annuleren," +
			"annuleren we,ik vergoed,vergoed ik,wij vergoeden,vergoeden wij,we vergoeden,vergoeden we,geen probleem,voor mijn rekening,voor onze rekening,ik breng,ik kom,wij komen,ik neem de,ik neem het,is geannuleerd,ik ben erbij,ik neem het aan",
	},
	{
		Portuguese,
		"o a os as e é não que de do da dos das em um uma para com por no na nos se eu você vocês meu minha seu sua obrigado obrigada olá mas mais ao às amanhã hoje está" +
			" isso este esta sim bom bem muito segunda terça quarta quinta sexta sábado domingo semana são foi será",
		"reserv|ar o amos am ei ou ado ada ados adas arei ará aremos; reserva|. s; confirm|ar o a amos am ei ou ado ada ados adas arei aremos ação ações; agend|ar o amos ei ou ado ada arei aremos amento;" +
			" marcad|o a os as; reuni|ão ões; compromisso|. s; compromet|o er emos ido ida i; acord|o os ado ada; concord|o ar amos ado; aprov|ar o a amos ei ou ado ada arei aremos ação; aloc|ar ado ada arei;" +
			" atribu|ir ído ída; promet|o er e emos i ido ida erei eremos; promessa|. s; garant|ir o e imos ido ida irei iremos; garantia|. s; prazo|. s; encomend|ar o amos ei ado arei aremos; enviamos; mandamos; mandarei; pagamos; entrego; entregamos; levarei; levaremos; trarei; assino; assinamos; assinarei; farei; faremos; darei; daremos;" +
			" cobrimos; cobriremos; devolvemos; devolverei; reembolsamos; reembolsaremos; cancelad|o a os as; comprarei; venderei; irei; iremos",
		"vou enviar,vou mandar,vou pagar,vou fazer,vamos enviar,vamos pagar,vou entregar,vamos entregar,vou te enviar,vou lhe enviar,enviarei,enviaremos,pagarei,pagaremos,entregarei,entregaremos," +
			"eu cuido,nós cuidamos,deixa comigo,deixe comigo,fechado,combinado,de acordo,para mim está bem,por mim tudo bem,está bom para mim,pode contar,podem contar,conte comigo,conte conosco," +
			"aceito,aceitamos,dou minha palavra,eu juro,juro que,negócio fechado,pela presente,sem problema,foi cancelado,foi cancelada,reembolsaremos,levarei,eu levo,estarei lá,farei isso,faremos isso",
	},
}

// english are words that distinguish English from all of them.
const english = "the of and to is you that it for was with are this have be on not we as at your from or by will would can could please thanks but they" +
	" he she his her has had my our there their what which when were been if so do does did about out up all any more who how its also just into than then" +
	" these those some only them us should may might here i i'm i'll it's an"

// ideographs are the words and cues of the languages without blanks, each for Japanese, Chinese or
// both. The words of the first row belong to neither: they contain one of the others and bind
// nobody, for example a meeting room or a network protocol.
var ideographs = [...]struct {
	japanese, chinese bool
	words             string
}{
	{false, false, "会議室 会議所 国際会議場 会議録 予約語 契約社員 契約者 承認者 承認欲求 同意語 指名手配 有効期限 賞味期限 消費期限 使用期限 無期限 期限切れ" +
		" コミットメッセージ コミットハッシュ コミットログ コミット履歴" +
		" 会议室 會議室 会议厅 會議廳 会议纪要 會議紀要 会议记录 會議記錄 打开会话 打開會話 公开会话 公開會話 展开会话 展開會話 开会员 開會員 有效期限 无期限 無期限 保质期限 截止阀 截止閥" +
		" 截止目前 截止到目前 截止现在 截止現在 成交量 成交额 成交額 分配器 分配律 下单元 下单词 下单位 自我保护 自我保護 就定义 就定義" +
		" 通信协议 通訊協議 通讯协议 网络协议 網路協議 網絡協議 传输协议 傳輸協議 协议栈 協議棧 协议头 协议版本 協議版本" +
		" 未確認 未确认 未承認 未承諾 未承诺 未批准 未同意 未予約 未预订 未契約 未签署"},
	{true, false, "予約 会議 打ち合わせ ミーティング 締め切り 締切 割り当て 割当 確約 約束 承認 了承 合意 スケジュール コミット 契約 手配 お送りします 送ります 送付します 送信します お支払いします 支払います" +
		" 対応します 対応いたします 承知しました 承知いたしました かしこまりました 了解しました 了解いたしました 了解です 引き受けます お引き受け 任せてください お任せください 届けます お届けします" +
		" 間に合わせます 注文します 発注します 誓います 参加します 伺います キャンセルいたしました 返金は 返金いたします 手配しました 変更しました 発送しました 発送します 用意いたします 用意します 手配いたします 手配します 発送いたします 変更いたします 変更します 連絡いたします 連絡します 準備いたします 準備します 払います 支払いました 予約いたしました" +
		" キャンセルしました 行きます 参ります 渡します 買います 売ります 承ります お受けします お受けいたします でお願いします いいですよ わかりました 問題ありません それで大丈夫です それでお願いします"},
	{true, true, "確認 同意 保証 期限 承諾"},
	{false, true, "预订 預訂 预定 預定 预约 預約 确认 批准 分配 指派 保证 保證 承诺 会议 會議 开会 開會 截止 预留 預留 安排 约定 約定 答应 答應 许诺 许下 协议 協議 签署 簽署 签约 订购" +
		" 我会 我會 我们会 我們會 我将 我將 我们将 我們將 我来处理 我来办 我来安排 没问题 沒問題 成交 就这么定 就這麼定 一言为定 一言為定 说定了 我付 我们付 支付 付款 我接受 我们接受 我發誓 我发誓 下单 已取消 已付 我保 交给我 包在我身上 没有问题 沒有問題 就这么办 就這麼辦 已为您 已為您 会为您 會為您 将为您 將為您 给您退 給您退 我负责 我負責 由我 承担 承擔 算我一个 我请客 我請客 不见不散 我带 我送 我寄 我发给 我給你 我给你 就订 就定 订这间 已退款 退款 已发货 已更改"},
}

// lingo finds words of the languages.
type lingo struct {
	common commons
	// pairs are the first two characters of the ideographs, with a bit for the hash of each.
	// ideographs are the entries, grouped by that hash.
	pairs      [1 << 14 / 64]uint64
	ideographs [1 << 8][]ideograph
}

type ideograph struct {
	word              string
	japanese, chinese bool
	// harmless words are of neither language's list, see [ideographs].
	harmless bool
}

// isLanguage reports whether a family belongs to a language: the names of those are codes.
func isLanguage(family string) bool { return len(family) == 2 }

const ofEnglish = 1 << len(languages)

func (d *Detector) learnLanguages() {
	d.lingo = new(lingo)
	for i := range languages {
		l := languages[i]
		for word := range strings.FieldsSeq(l.common) {
			d.lingo.common.add(word, 1<<i)
		}
		if d.off(l.family) {
			continue
		}
		for one := range strings.SplitSeq(l.words, ";") {
			stem, endings, _ := strings.Cut(strings.TrimSpace(one), "|")
			if endings == "" {
				endings = "."
			}
			for ending := range strings.FieldsSeq(endings) {
				d.learnIn(d.fold(stem+strings.TrimPrefix(ending, "."), true), 1<<i)
			}
		}
		for spelled := range strings.SplitSeq(l.phrases, ",") {
			symbols := d.fold(spelled, false)
			if n := d.cues.ending(symbols); n == 0 {
				d.cues.add(symbols, len(d.phrases))
				d.phrases = append(d.phrases, phrase{then: spoken, languages: 1 << i})
			} else if d.phrases[n-1].family == "" {
				d.phrases[n-1].languages |= 1 << i
			}
		}
	}
	for word := range strings.FieldsSeq(english) {
		d.lingo.common.add(word, ofEnglish)
	}
	for _, row := range ideographs {
		for word := range strings.FieldsSeq(row.words) {
			two := eightFrom(word, 0) & sixBytes
			hash := ofTwo(two)
			d.lingo.pairs[hash>>6] |= 1 << (hash & 63)
			some := &d.lingo.ideographs[hash%(1<<8)]
			*some = append(*some, ideograph{word, row.japanese && !d.off(Japanese), row.chinese && !d.off(Chinese), !row.japanese && !row.chinese})
		}
	}
}

// learnIn learns a word for one more language. The thirteen, and words that contain them, keep
// their meaning in any language.
func (d *Detector) learnIn(word []glyph, language uint16) {
	all := language
	if n := d.words.ending(word); n != 0 {
		if d.entries[n-1].languages == 0 {
			return
		}
		all |= d.entries[n-1].languages
	}
	number := slices.Index(d.entries, entry{languages: all})
	if number < 0 {
		number = len(d.entries)
		d.entries = append(d.entries, entry{languages: all})
	}
	d.words.set(word, number)
}

// fold spells a word in the symbols as which a text is read.
func (d *Detector) fold(spelled string, asWord bool) []glyph {
	var symbols []glyph
	for _, r := range spelled {
		g := d.atlas.of(r)
		switch {
		case r == ' ':
			g = symGap
		case r == '\'':
			g = symApostrophe
		case asWord:
			g = upright(g)
		}
		symbols = append(symbols, g)
	}
	return symbols
}

// around is the number of bytes before and after a block of a text that determine its language, and
// block the number of bytes that are taken together.
const (
	around = 256
	block  = 512
)

// sixBytes masks two characters of three bytes, with which all entries begin.
const sixBytes = 1<<48 - 1

func ofTwo(characters uint64) uint64 { return characters * spread >> 50 }

// begins reports whether a word of the ideographs begins with two characters.
func (l *lingo) begins(two uint64) bool {
	hash := ofTwo(two)
	return l.pairs[hash>>6]>>(hash&63)&1 != 0
}

// spaceless skips the Chinese and Japanese characters at pos and gathers the words and cues among
// them.
func (g *gathering) spaceless(s string, pos int) int {
	for pos+2 < len(s) {
		var w uint64
		if pos+8 <= len(s) {
			w = text.Eight(s[pos:])
		} else {
			w = eightFrom(s, pos)
		}
		if w&0xc0c0f0 != 0x8080e0 || spacelessBy[w&15<<6|w>>8&63]>>(w>>16&63)&1 == 0 {
			break
		}
		next := pos + 3
		if g.d.lingo.begins(w & sixBytes) {
			next = max(next, g.written(s, pos, w&sixBytes))
		}
		pos = next
	}
	return pos
}

// spacelessBy is a table of isSpaceless for characters of three bytes: a bit for each third byte,
// by the first two.
var spacelessBy = func() (table [1 << 10]uint64) {
	for at := range table {
		for third := range 64 {
			if isSpaceless(0xe0|byte(at>>6), 0x80|byte(at&63), 0x80|byte(third)) {
				table[at] |= 1 << third
			}
		}
	}
	return table
}()

// isSpaceless reports whether three bytes are a character of Chinese or Japanese, other than a
// blank or a character in a Latin word.
func isSpaceless(a, b, c byte) bool {
	switch {
	case a-0xe4 <= 0xe9-0xe4: // ideographs
		return true
	case a == 0xe3: // kana, and the signs 、。「」
		return b-0x81 <= 0x83-0x81 && (b != 0x82 || c != 0x99 && c != 0x9a) || b == 0x80 && (c == 0x81 || c == 0x82 || c == 0x8c || c == 0x8d)
	case a == 0xef: // （），：；？
		return b == 0xbc && (c == 0x88 || c == 0x89 || c == 0x8c || c == 0x9a || c == 0x9b || c == 0x9f)
	}
	return false
}

// language returns the family of the language, of several, that a text has around a position, or
// nothing. A short text in no known language counts as any of them.
func (g *gathering) language(text string, pos int, among uint16) string {
	if i := pos / block; g.spokenAt != i {
		g.spokenAt = i
		g.count(text[max(0, i*block-around):min(len(text), i*block+block+around)])
	}
	english, most, family := int(g.spoken[len(languages)]), -1, ""
	for i := range languages {
		if n := int(g.spoken[i]); among>>i&1 != 0 && n > most && !g.d.off(languages[i].family) {
			most, family = n, languages[i].family
		}
	}
	if most > english || most == 0 && english == 0 && len(text) < around {
		return family
	}
	return ""
}

// count counts the common words of a stretch for each language.
func (g *gathering) count(text string) {
	clear(g.spoken[:])
	for pos := 0; pos < len(text); {
		letters, small, next := wordAt(text, pos)
		if letters == 8 {
			var more uint64
			if letters, more, next = wordAt(text, pos+8); letters > maxCommon-8 {
				for pos += 8; pos < len(text) && wordByte(text[pos]); {
					pos++
				}
				continue
			}
			small, letters, next = joined(small, more), letters+8, next+8
		}
		if letters > 0 {
			for of := g.d.lingo.common.of(small); of != 0; of &= of - 1 {
				g.spoken[bits.TrailingZeros16(of)]++
			}
		}
		pos += next
	}
}

// wordAt reads the word at the beginning of the eight bytes from pos on. It returns the number of
// its letters among them, these letters in lower case, and the distance from pos to the earliest
// next word.
func wordAt(text string, pos int) (letters int, small uint64, next int) {
	w := eightFrom(text, pos)
	ascii := w &^ highBits
	small = w | ^w&highBits>>2
	low := small &^ highBits
	is := (low+(0x80-'a')*inEach)&^(low+(0x7f-'z')*inEach) | // letters
		(ascii+(0x80-'0')*inEach)&^(ascii+(0x7f-'9')*inEach) | // digits
		(highBits - (ascii ^ '\''*inEach)) | w
	is &= highBits
	letters = bits.TrailingZeros64(is^highBits) / 8
	if letters == 8 {
		return letters, small, letters
	}
	rest := is &^ (1<<(8*letters) - 1)
	return letters, small & (1<<(8*letters) - 1), bits.TrailingZeros64(rest) / 8
}

// maxCommon is the length of the longest common word.
const maxCommon = 12

// commons gives the languages in which a word is common, one bit each in the order of the list,
// with the last one for English. The key is a hash of the word's letters; the entry is at the first
// free place after it.
type commons [1 << 11]struct {
	hash uint32
	of   uint16
}

// joined combines the letters of a long word.
func joined(first, more uint64) uint64 { return first*spread ^ more }

func (c *commons) place(word uint64) (at, hash uint32) {
	hash = uint32(word * spread >> 32)
	at = hash >> 21
	for c[at].hash != 0 && c[at].hash != hash {
		at = (at + 1) % uint32(len(c))
	}
	return at, hash
}

func (c *commons) add(spelled string, of uint16) {
	letters, word, _ := wordAt(spelled, 0)
	if letters == 8 {
		_, more, _ := wordAt(spelled, 8)
		word = joined(word, more)
	}
	at, hash := c.place(word)
	c[at].hash = hash
	c[at].of |= of
}

func (c *commons) of(word uint64) uint16 {
	at, _ := c.place(word)
	return c[at].of
}

// written looks for a word or a cue that begins with two characters at pos. It returns the end of
// one that binds nobody: its contents are skipped.
func (g *gathering) written(text string, pos int, two uint64) (end int) {
	if g.ideographs >= 2*MaxPerKind {
		return 0 // more of them would say nothing new
	}
	for _, one := range g.d.lingo.ideographs[ofTwo(two)%(1<<8)] {
		if !strings.HasPrefix(text[pos:], one.word) {
			continue
		}
		if one.harmless {
			return pos + len(one.word)
		}
		family := Chinese
		if g.kana(text, pos) {
			family = Japanese
		}
		if (family == Japanese && one.japanese || family == Chinese && one.chinese) && !asked(text, pos+len(one.word)) {
			g.ideographs++
			g.add(Hit{Rule: family, Start: pos, End: pos + len(one.word)})
		}
		break
	}
	return 0
}

// kana reports whether the text around a position has a character of the Japanese syllabaries.
func (g *gathering) kana(text string, pos int) bool {
	if i := pos / block; g.kanaAt != i {
		g.kanaAt, g.isKana = i, false
		about := text[max(0, i*block-around):min(len(text), i*block+block+around)]
		for at := strings.IndexByte(about, 0xe3); at >= 0 && !g.isKana; {
			r, _ := utf8.DecodeRuneInString(about[at:])
			g.isKana = r >= 0x3041 && r <= 0x30fa
			next := strings.IndexByte(about[at+1:], 0xe3)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return g.isKana
}

// manyUnread is the number of letters in a row, in a script that no list has words for, that make a
// text unreadable. gapUnread bounds the bytes between two of them.
const (
	manyUnread = 24
	gapUnread  = 16
)

// unread counts letters of that width, from pos on, in a script that no list has words for.
func (g *gathering) unread(pos, letters, width int) {
	if pos-g.unreadEnd > gapUnread {
		g.unreadStart, g.unreadCount = pos, 0
	}
	g.unreadEnd = pos + letters*width
	before := g.unreadCount
	if g.unreadCount += letters; before < manyUnread && g.unreadCount >= manyUnread {
		g.add(Hit{Rule: Unreadable, Start: g.unreadStart, End: pos + (manyUnread-before)*width})
	}
}

// firstUnread is the first character of a script that no list has words for.
const firstUnread = 0x370

// readable reports whether a character belongs to a script that a list has words for, or to none.
func readable(r rune) bool {
	switch page := r >> 8; {
	case page < 0x20:
		return page == 0x1d || page == 0x1e || r < firstUnread
	case page < 0xa0:
		return true
	case page < 0xd8:
		return false
	case page < 0xe0, r >= 0xf900 && r < 0xfb1d, page == 0xfe && r < 0xfe70, page == 0xff && r < 0xfffd, r >= 0x1d000 && r < 0xf0000:
		return true
	}
	return false
}
