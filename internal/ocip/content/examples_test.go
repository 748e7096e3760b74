package content

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

// Parts of the examples.
var (
	b64     = base64.StdEncoding.EncodeToString
	jwtLike = strings.TrimRight(b64([]byte(`{"alg":"HS256","typ":"JWT"}`)), "=") + "." + strings.TrimRight(b64([]byte(`{"sub":"1234567890"}`)), "=") + "." + body(mixed, 43)
	pemLike = "-----BEGIN " + "PRIVATE KEY-----\n" + body(mixed, 64) + "\n-----END " + "PRIVATE KEY-----"
	ppkLike = "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\n" + body(mixed, 64) + "\nPrivate-Lines: 1\n" + body(mixed, 48) +
		"\nPrivate-MAC: " + body(hexes, 64)
	manifest = "kind: Secret\ndata:\n  login: " + b64([]byte("admin:S3cret!pass")) + "\n"
)

// examples has, for each rule that needs more than a prefix, a text that it matches and one that it
// does not.
var examples = map[string][2]string{
	rulePrivateKey:     {pemLike, strings.ReplaceAll(pemLike, "PRIVATE", "PUBLIC")},
	rulePutty:          {ppkLike, strings.ReplaceAll(ppkLike, "Private-Lines", "Lines")},
	ruleJWT:            {jwtLike, jwtLike[:40]},
	ruleAWSSecret:      {"aws_secret_access_key=" + body("wJalr+XUtn4/", 40), "a sum: " + body("wJalr+XUtn4/", 40)},
	ruleAzure:          {"AccountKey=" + body(mixed, 86) + "==", "AccountKey=" + body(mixed, 80)},
	ruleAzureKey:       {body(mixed, 52) + "JQQJ99" + body(mixed, 26), body(mixed, 51) + "JQQJ99" + body(mixed, 26)},
	ruleEntra:          {"a1b7" + "Q~" + body(mixed, 34), "a1bc" + "Q~" + body(mixed, 34)},
	ruleSendGrid:       {"SG." + body(mixed, 22) + "." + body(mixed, 43), "SG." + body(mixed, 22) + "." + body(mixed, 12)},
	ruleMailchimp:      {body(hexes, 32) + "-us12", body(hexes, 31) + "-us12"},
	ruleMaxMind:        {body(mixed, 6) + "_" + body(mixed, 29) + "_mmk", body(mixed, 8) + "_mmk"},
	ruleTerraform:      {body(mixed, 14) + ".atlasv1." + body(mixed, 67), body(mixed, 14) + ".atlasv1." + body(mixed, 20)},
	ruleNewRelic:       {body(hexes, 36) + "NRAL", body(hexes, 30) + "NRAL"},
	ruleMapbox:         {"sk." + "eyJ" + body(mixed, 60) + "." + body(mixed, 22), "pk." + "eyJ" + body(mixed, 60) + "." + body(mixed, 22)},
	ruleFacebookApp:    {"1203456789120345|" + body(mixed, 27), "a table |1203456789|" + body(mixed, 27)},
	ruleOkta:           {"Authorization: SSWS 00" + body(mixed, 40), "SSWS 01" + body(mixed, 40)},
	ruleSlackWebhook:   {"https://hooks.slack.com/services/T0" + body(capped, 8) + "/B0" + body(capped, 8) + "/" + body(mixed, 24), "https://hooks.slack.com/services/T000/B000/XXXX"},
	ruleDiscordWebhook: {"https://discord.com/api/webhooks/120345678912034567/" + body(mixed, 68), "https://discord.com/api/webhooks/120345678912034567"},
	ruleDiscord:        {"the discord bot: M" + body(mixed, 23) + "." + body(mixed, 6) + "." + body(mixed, 38), "the bot: M" + body(mixed, 23) + "." + body(mixed, 6) + "." + body(mixed, 38)},
	ruleTeamsWebhook:   {"https://a.webhook.office.com/webhookb2/1-2@3-4/IncomingWebhook/" + body(hexes, 32) + "/5-6", "https://a.webhook.office.com/webhookb2/1-2"},
	ruleTelegram:       {"123456789:AA" + body(mixed, 33), "123456789:AB" + body(mixed, 33)},
	ruleTwilio:         {"twilio SK" + body(hexes, 32), "SK" + body(hexes, 32)},
	ruleKubernetes:     {manifest, strings.Replace(manifest, "Secret", "ConfigMap", 1)},
	ruleBearer:         {"Bearer " + body(mixed, 32), "Bearer of-this-is-a-long-composed-word"},
	ruleAuthorization:  {"Authorization: Token " + body(mixed, 32), "authorization: see the next-page-of-our-manual"},
	ruleBasic:          {"Authorization: Basic " + b64([]byte("bob:hunter2")), "Authorization: Basic " + b64([]byte("nobody here"))},
	ruleURL:            {"https://bob:hunter2@example.com/", "https://bob@example.com/"},
	ruleDatabase:       {"postgres://app:s3cret@db/app", "postgres://app@db/app"},
	ruleRegistry:       {`{"auths":{"r.example":{"auth":"` + b64([]byte("bob:hunter2")) + `"}}}`, `{"auth":"` + b64([]byte("nobody here")) + `"}`},
	ruleAzureSAS:       {"?sv=2022-11-02&se=2030-01-01T00:00:00Z&sig=" + body(mixed, 40) + "%2Bab%3D", "?sig=" + body(mixed, 40) + "%2Bab%3D"},
	ruleCurl:           {"curl -u bob:hunter2x https://example.com", "sudo -u bob:hunter2x"},
	ruleAssignment:     {"password: Tr0ub4dor&3", "password: ask Bob"},
	rulePassword:       {"the PIN is 7493", "the PIN is on its way"},

	ruleCard:     {"4111 1111 1111 1111", "4111 1111 1111 1112"},
	ruleIBAN:     {"GB82 WEST 1234 5698 7654 32", "GB83 WEST 1234 5698 7654 32"},
	ruleSSN:      {"SSN 536-90-4399", "SSN 666-90-4399"},
	ruleSteuerID: {"Steuer-ID 86095742719", "Steuer-ID 86095742718"},
	ruleAadhaar:  {"Aadhaar 2341 2341 2346", "Aadhaar 2341 2341 2347"},
	ruleNINO:     {"nino AB123456C", "nino BG123456C"},
	ruleDNI:      {"DNI 12345678Z", "DNI 12345678A"},
	ruleINSEE:    {"NIR 255081416802538", "NIR 255081416802539"},

	ruleConfidential: {"CONFIDENTIAL - do not forward\nnumbers", "this is confidential, I guess"},
	ruleStrictly:     {"STRICTLY CONFIDENTIAL", "strictly speaking"},
	ruleInternal:     {"INTERNAL ONLY: roadmap", "an internal matter"},
	ruleRestricted:   {"RESTRICTED\ntext", "RESTRICTED ACCESS area"},
	ruleSecret:       {"TOP SECRET", "SECRET SANTA at noon"},
	ruleRed:          {"TLP:RED", "TLP:REDACTED"},
	ruleAmberStrict:  {"TLP:AMBER+STRICT", "TLP:CLEAR"},
	ruleAmber:        {"TLP:AMBER", "ATLP:AMBER"},
	ruleGreen:        {"TLP:GREEN", "green"},
}

// TestExamples checks every rule with its examples. For rules of a prefix, TestTokens makes them
// from their shapes.
func TestExamples(t *testing.T) {
	d := detector(t)
	known := map[string]bool{}
	for _, tok := range tokens {
		known[tok.id] = len(tok.shapes) > 0
	}
	for _, name := range Personal() { // see TestPersonal
		known[personalPrefix+name] = true
	}
	for _, r := range Rules() {
		e, listed := examples[r.ID]
		if !listed && !known[r.ID] {
			t.Errorf("%s has no examples", r.ID)
		}
		if r.Source == "" || (rank(r.Level) == 0) != strings.HasPrefix(r.ID, personalPrefix) {
			t.Errorf("%+v says too little", r)
		}
		if !listed {
			continue
		}
		is := func(f Finding) bool { return f.Rule == r.ID && f.Level == r.Level }
		if found := d.Detect(e[0]); !slices.ContainsFunc(found, is) {
			t.Errorf("%s: got %v in %q", r.ID, found, e[0])
		}
		if found := d.Detect(e[1]); slices.ContainsFunc(found, is) {
			t.Errorf("%s: found in %q", r.ID, e[1])
		}
	}
	if !slices.IsSortedFunc(Rules(), func(a, b Rule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("not sorted")
	}
	for i, r := range Rules()[1:] {
		if r.ID == Rules()[i].ID {
			t.Errorf("%s is there twice", r.ID)
		}
	}
}

// TestWaysToAssign assigns a value to a name in each form of configurations, sources and markup.
func TestWaysToAssign(t *testing.T) {
	value := "\u00ab" + body(hexes, 32) + "\u00bb"
	d := detector(t)
	for _, way := range []string{
		"xToken=%", `X_TOKEN = "%"`, `xToken := "%"`, "x_token: '%'", `{"x_token": "%"}`, `"xToken" => "%"`, `String xToken = "%";`,
		`System.setProperty("X_TOKEN", "%")`, `var xToken string = "%"`, `const xToken: string = "%"`, `x_token: str = "%"`,
		"<xToken>\n    %\n</xToken>", "<xToken>%</xToken>", `X_TOKEN ?= "%"`, `X_TOKEN ::= "%"`, `X_TOKEN :::= "%"`, `$xToken .= "%"`, `X_TOKEN += "%"`,
		`xToken ||= "%"`, `xToken ??= "%"`, `if (xToken === "%") {`, `if (xToken != "%") {`, `<add key="xToken" value="%" />`, `x_token "%"`,
		"machine example.com login bob password %", "run --token % --verbose", "run --api-key '%'", "secret key: %", "the api key is %.", "the access token was %", "master-key: %",
	} {
		one(t, d, strings.Replace(way, "%", value, 1), ruleAssignment, Restricted)
	}
	none(t, map[string]string{
		"compared to a name": "if token != " + body(mixed, 20) + " {",
		"typed, no value":    "func f(token string, secret string) (password string)",
		"a tag in a text":    "a token>" + body(hexes, 32),
		"a page's token":     `"EntropyOriginTrialToken": "` + body(mixed, 64) + `"`,
		"a token of a form":  `<input name="authenticity_token" value="` + body(mixed, 40) + `">`,
		"an option":          "run --token <token> --secret $SECRET1A --password-file /run/a1B2c3D4 --token --verbose1A2b3C4",
		"said of it":         "the secret is out, the token is generated1 by step2, the api key is in 1Password",
		"what passes":        "--- PASS: TestFoo12Bar! bypass=Abc123!x first-pass Abc123!x Pass: Abc123!x",
		"a colour":           `PASS="\x1b[32mPASS"`,
		"a member":           "token = config.Level2Name3.Secret5Key4.value",
		"cut off":            "access_token: ya29.a0AfH6SMC...",
		"cut off, quoted":    `access_token: "ya29.a0AfH6SMC..."`,
		"a UUID":             "request_token = 550e8400-e29b-41d4-a716-446655440000",
	})
	for _, way := range []string{"mapquest_key=%", `MAPTILER_KEY: "%"`, "geocoder-key = '%'", "--weather_key=%"} {
		one(t, d, strings.Replace(way, "%", "\u00ab"+body(mixed, 32)+"\u00bb", 1), ruleAssignment, Restricted)
	}
	none(t, map[string]string{
		"a key of a store": "object_key=" + body(mixed, 32) + " cache-key: " + body(mixed, 32) + " primary_key = " + body(mixed, 32),
		"a short key":      "mapquest_key=" + body(mixed, 20),
		"a name":           "mapquest_key=loadTheKeyOfTheMapService2From1File",
		"a hash":           "mapquest_key=" + body(hexes, 32),
		"a stand-in":       "mapquest_key=your" + body(mixed, 32),
		"no name":          "_key=" + body(mixed, 32),
		"AWS examples":     "AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
	})
	for _, way := range []string{"DB_PASS=%", "db-pass: %", `dbPass = "%"`, "PASS=%", `--password %`, "--db-password '%'"} {
		one(t, d, strings.Replace(way, "%", "\u00abTr0ub4dor&3\u00bb", 1), ruleAssignment, Restricted)
	}
	one(t, d, "x-vault-token: \u00abs."+body(mixed, 24)+"\u00bb", ruleAssignment, Restricted)
	one(t, d, "heroku_token = \u00ab550e8400-e29b-41d4-a716-446655440000\u00bb", ruleAssignment, Restricted)
}

// TestPasswordsInLetters has passwords as in people's messages, in the languages in which
// commitments are detected.
func TestPasswordsInLetters(t *testing.T) {
	d := detector(t)
	for _, text := range []string{
		"My password is \u00abrabbit17\u00bb.", "the password was \u00ab77rabbit\u00bb, change it", "Password: \u00abgreen42lamp\u00bb", "User ID: bob Password:  \u00abgig9raw5\u00bb  Please",
		"the PIN is \u00ab7493\u00bb", "PIN: \u00ab7493\u00bb", "pin code: \u00ab7493\u00bb", "The passcode is \u00ab352172\u00bb.", "your password is: \u00ablamp42green\u00bb\n",
		"Das Passwort lautet \u00abhase17gruen\u00bb.", "Kennwort ist \u00abhase17gruen\u00bb", "Die Geheimzahl ist \u00ab7493\u00bb.",
		"la contrase\u00f1a es \u00abconejo17\u00bb", "clave: \u00abconejo17\u00bb", "le mot de passe est \u00ablapin17vert\u00bb", "mot de passe : \u00ablapin17vert\u00bb",
		"la password \u00e8 \u00abconiglio17\u00bb", "het wachtwoord is \u00abkonijn17\u00bb", "a senha \u00e9 \u00abcoelho17\u00bb", "palavra-passe: \u00abcoelho17\u00bb",
		"pw: \u00ablipstick1\u00bb", "network \"guest\", password \u00ablipstick16\u00bb. Bye", "The PIN for the alarm is \u00ab7493\u00bb.", "password for the staging box: \u00ablipstick1\u00bb",
		"das Passwort f\u00fcr das WLAN lautet \u00ablampe42\u00bb", "la contrase\u00f1a del wifi es \u00abconejo17\u00bb", "Benutzer bob, Kennwort \u00ablampe42\u00bb", "OTP: \u00ab482913\u00bb", "Your verification code is \u00ab482913\u00bb.", "c\u00f3digo de verificaci\u00f3n: \u00ab482913\u00bb", "\u9a8c\u8bc1\u7801\u662f\u00ab482913\u00bb", "\u9a8c\u8bc1\u7801\uff1a\u00ab482913\u00bb",
		"\u30d1\u30b9\u30ef\u30fc\u30c9\u306f\u00abusagi2017\u00bb\u3067\u3059", "\u5bc6\u7801\u662f\u00abtuzi2017\u00bb", "\u5bc6\u7801\uff1a\u00abtuzi2017\u00bb",
	} {
		one(t, d, text, rulePassword, Restricted)
	}
	none(t, map[string]string{
		"asked":      "is the password: section4?",
		"a word":     "the password is required, the password is wrong, password was reset",
		"a method":   "the password is base64 encoded; password: sha256",
		"a length":   "the password is 8-characters long, a password is 12 letters",
		"a place":    "the password is in the safe of room 12",
		"a path":     "password: /run/secrets/db1 and password: secrets/db1",
		"code":       "password: input1, password = param2, password: str2(x)",
		"a variable": "password is ${DB_PASSWORD1}",
		"a pin":      "the pin is 13 mm long; pin: GPIO17; pin is A4",
		"a postal":   "PIN: 560001, India",
		"opinion":    "my opinion: 1234; spin: 4321",
		"cut off":    "the password is rab1...",
		"clave":      "la clave es 12 veces mejor",
		"a number":   "password: 12",
		"a code":     "the verification code is required; security code: 123 (three digits); the login code is 12 lines; postcode: 482913",
		"a folder":   "pwd: src1/app2",
		"beside it":  "a password required2day, password Field12, the password step23 of it, password v12, PASSWORD ABC123, password-protected2024 files",
		"for what":   "the password for the account is required, the PIN for the alarm is in the drawer, the password for user2 is asked",
	})
}

// TestPartsOfOthers has numbers that are parts of something else.
func TestPartsOfOthers(t *testing.T) {
	none(t, map[string]string{
		"a publisher": "ca-host-pub-4111111111111111",
		"a fraction":  "1/4111111111111111 and 4111111111111111/7",
		"a UUID":      uuidWithIBAN,
	})
	one(t, detector(t), "my card 1-\u00ab4111111111111111\u00bb", ruleCard, Confidential)
}

// uuidWithIBAN ends in an IBAN of Belgium.
const uuidWithIBAN = "550e8400-e29b-41d4-be68-539007547034"
