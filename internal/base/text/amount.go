package text

import "strings"

// amounts lists words in the names of members whose value is a sum of money.
const amounts = "amount price total cost fee budget salary payment deposit refund discount charge invoice balance wage sum bid usd eur gbp" +
	" betrag preis summe kosten gebühr importe precio montant prix importo prezzo bedrag prijs valor preço 金額 价格 金额 価格"

// NamesAmount reports whether the path of a member names a sum of money, in its last
// name: "order.totalPrice".
func NamesAmount(path string) bool {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if name == "" {
		return false
	}
	name = Fold(name, CaseUnicode)
	for one := range strings.FieldsSeq(amounts) {
		if strings.Contains(name, one) {
			return true
		}
	}
	return false
}
