package commitment

import (
	"strings"
	"testing"
)

// TestLanguages checks the equivalents of the keywords, and the cues, in the listed languages.
func TestLanguages(t *testing.T) {
	d := detector(t, Options{})
	for family, texts := range map[string]string{
		German: "Ich reserviere den Tisch für Freitag.|Der Termin ist bestätigt.|Wir haben den Flug gebucht.|Ich verspreche es dir.|Das genehmigen wir.|Wir garantieren die Lieferung.|" +
			"Ich schicke dir die Zahlen bis Freitag.|Passt mir.|Geht klar, bis morgen!|Einverstanden.|Die Frist endet am Montag.|Wir werden am Montag liefern.|Die Besprechung ist um drei.|" +
			"Hiermit bestelle ich 100 Stück.|Wir sagen zu: die Zusage gilt.|ICH BESTÄTIGE DEN TERMIN.|Ich bestatige das nicht nur so.",
		Spanish: "Confirmo la reunión para el jueves.|Reservé la mesa para dos.|Le garantizamos la entrega.|Prometo que lo haré.|De acuerdo, nos vemos mañana.|Apruebo el presupuesto.|" +
			"Le enviaré el informe mañana.|Aceptamos su oferta.|Me encargo de eso.|El plazo es el viernes.|La cita está agendada.|Trato hecho.",
		French: "Je confirme la réunion de jeudi.|La table est réservée pour vous.|Nous vous garantissons la livraison.|Je promets de le faire.|D'accord, à demain.|Nous approuvons le budget.|" +
			"Je vous envoie le rapport demain.|Nous acceptons votre offre.|Je m'en occupe.|L'échéance est vendredi.|Le rendez-vous est pris.|Marché conclu.|Je m’en charge.",
		Italian: "Confermo la riunione di giovedì.|Ho prenotato il tavolo per due.|Le garantiamo la consegna.|Prometto che lo farò.|D'accordo, a domani.|Approviamo il preventivo.|" +
			"Invierò il rapporto domani.|Accettiamo la vostra offerta.|Ci penso io.|La scadenza è venerdì.|L'appuntamento è alle tre.|Affare fatto.|Va bene.",
		Dutch: "Ik bevestig de vergadering van donderdag.|De tafel is gereserveerd voor u.|Wij garanderen de levering.|Ik beloof het je.|Afgesproken, tot morgen.|Het budget is goedgekeurd.|" +
			"Ik stuur het rapport morgen.|Wij accepteren uw aanbod.|Ik zorg voor de taart.|We hebben de vlucht geboekt.|Akkoord.|Ik zal het doen.",
		Portuguese: "Confirmo a reunião de quinta.|A mesa está reservada para você.|Garantimos a entrega.|Prometo que farei isso.|Combinado, até amanhã.|Aprovamos o orçamento.|" +
			"Enviaremos o relatório amanhã.|Aceitamos a sua oferta.|Deixa comigo.|O prazo é sexta.|Negócio fechado.|O voo foi marcado e reservado.",
		Japanese: "木曜日の会議を確認しました。|席を予約しました。|納期を保証します。|約束します。|承知いたしました。|予算を承認します。|明日報告書をお送りします。|お任せください。|締め切りは金曜日です。|お支払いします。",
		Chinese:  "周四的会议已确认。|我已经预订了座位。|我们保证交货。|我承诺会做到。|没问题，明天见。|我批准这个预算。|我会在明天发送报告。|我们接受你的报价，成交。|截止日期是星期五。|我們會支付這筆款項。",
	} {
		for text := range strings.SplitSeq(texts, "|") {
			found, hits := false, d.Detect(text)
			for _, h := range hits {
				found = found || h.Rule == family && !h.Shadow && h.Keyword == ""
			}
			// The keywords are also words of other languages.
			if !found && (len(hits) == 0 || hits[0].Rule != RuleKeyword) {
				t.Errorf("%s: %q: found %+v", family, text, hits)
			}
		}
		shadowed := detector(t, Options{Families: map[string]Mode{family: Shadow}})
		first, _, _ := strings.Cut(texts, "|")
		if hits := shadowed.Detect(first); len(hits) == 0 || hits[0].Rule == family && !hits[0].Shadow {
			t.Errorf("%s shadowed: %q: found %+v", family, first, hits)
		}
		for _, h := range detector(t, Options{Families: map[string]Mode{family: Off}}).Detect(first) {
			if h.Rule == family {
				t.Errorf("%s off: %q: found %+v", family, first, h)
			}
		}
	}
}

// TestOtherLanguagesAreNotTheirs checks that a word of another language counts only in a text of
// that language, and that plain texts have none.
func TestOtherLanguagesAreNotTheirs(t *testing.T) {
	d := detector(t, Options{})
	for _, text := range []string{
		"The Reserva wine is what we drank, and it was a Gran Reserva from the north.", "She lives in the city of Termin and works there for a garage.",
		"The word for it is reunión, which you can read in the library of the town.", "We saw that the Honda Accord was red.",
		"Der Hund schläft auf dem Sofa.", "El gato está en la casa.", "Le chat est sur la table.", "Il gatto è sul tavolo.", "De kat zit op de stoel.", "O gato está na mesa.",
		"猫はテーブルの上にいます。", "猫在桌子上。", "今日はいい天気ですね。", "今天天气很好。", "Wann kommt der Zug?",
		// A request for a deed is not the deed.
		"Können Sie den Tisch für Freitag reservieren?", "¿Puedes reservar la sala para las cuatro?", "Pouvez-vous confirmer que le budget est alloué ?",
		"Può confermare la prenotazione per due?", "Kunt u de vergadering inplannen?", "Você pode agendar a reunião?", "¿Dónde está la estación?",
	} {
		if hits := d.Detect(text); len(hits) > 0 {
			t.Errorf("%q: found %+v", text, hits)
		}
	}
}

// TestCompounds checks that a word of the lists does not count inside another one that binds
// nobody, and that words beside it are found all the same.
func TestCompounds(t *testing.T) {
	d := detector(t, Options{})
	for _, text := range []string{
		"会議室は三階です。", "商工会議所の建物です。", "会議録は共有フォルダーにあります。", "クラスは予約語です。", "契約社員は三人います。", "契約者の名前です。", "トークンの有効期限は三十日です。", "証明書が期限切れです。",
		"無期限のトークンです。", "コミットメッセージが短いです。", "コミット履歴が長いです。", "同意語の辞書です。", "その値は未確認です。", "未承認のままです。",
		"会议室在三楼。", "會議室在三樓。", "会议纪要在文件夹里。", "打开会话需要密码。", "这是公开会话。", "截止目前有三个错误。", "今天的成交量很大。", "这个分配器很慢。",
		"请看以下单元。", "以下单词有三个。", "动物的自我保护。", "如果没有这一行，早就定义好了。", "网络协议有三层。", "HTTP是一种通信协议。", "协议栈在内核里。", "结果还未确认。",
	} {
		if hits := d.Detect(text); len(hits) > 0 {
			t.Errorf("%q: found %+v", text, hits)
		}
	}
	for text, want := range map[string]string{
		"会議は三階の会議室です。": "会議", "会議室を予約しました。": "予約", "国際会議を開きます。": "会議", "未確認でしたが、確認しました。": "確認", "有効期限の後の期限は金曜日です。": "期限",
		"会议在会议室。": "会议", "我会发送会议纪要。": "我会", "打开会议。": "开会", "网络协议已经签署。": "签署", "我下单了。": "下单", "我保护你，我保证。": "我保",
	} {
		hits := d.Detect(text)
		if len(hits) == 0 || text[hits[0].Start:hits[0].End] != want {
			t.Errorf("%q: found %+v, want %s", text, hits, want)
		}
	}
}

// TestUnreadable checks stretches in scripts that no list has words for, in shadow mode.
func TestUnreadable(t *testing.T) {
	d := detector(t, Options{})
	for text, want := range map[string]bool{
		"Мы забронировали столик на пятницу": true, "لقد حجزنا طاولة ليوم الجمعة القادم": true, "우리는 금요일에 테이블을 예약했습니다 감사합니다 다음에": true, "Κλείσαμε τραπέζι για την Παρασκευή": true,
		"so: हमने शुक्रवार के लिए एक मेज आरक्षित की है": true, strings.Repeat("\ue000", 30): true, strings.Repeat("\xff", 30): true,
		"Да, спасибо": false, "naïve café Straße": false, "日本語の文章はここに読めるものとしてあります": false, "": false,
	} {
		hits := d.Detect(text)
		found := false
		for _, h := range hits {
			if h.Rule == Unreadable {
				found = true
				if !h.Shadow || h.Start < 0 || h.End > len(text) || h.Start >= h.End {
					t.Errorf("%q: %+v", text, h)
				}
			}
		}
		if found != want {
			t.Errorf("%q: found %+v, want %v", text, hits, want)
		}
	}
}

// TestSpaceless checks that no letter, blank or character of a script without a list is skipped.
func TestSpaceless(t *testing.T) {
	a := sharedAtlas()
	for r := rune(0x800); r < 0x10000; r++ {
		s := string(r)
		if isSpaceless(s[0], s[1], s[2]) && (a.of(r) != other || !readable(r) || conceals(s, 0, len(s), other, r)) {
			t.Errorf("U+%04X is passed over", r)
		}
	}
}
