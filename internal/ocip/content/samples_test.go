package content

import "testing"

// detector finds everything except personal data, which occurs often in tests of other rules.
func detector(t testing.TB, patterns ...Pattern) *Detector {
	t.Helper()
	personal := map[string]string{}
	for _, name := range Personal() {
		personal[name] = Off
	}
	return made(t, Options{Patterns: patterns, Personal: personal})
}

func made(t testing.TB, o Options) *Detector {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// prose is an ordinary page with the words of the rules.
const prose = `Thanks for sending the agenda. I read the notes from Tuesday and have a few remarks before we meet again.
The secret of a good release is a boring one: nobody should notice it. We agreed on three internal milestones, and
the second of them (see page 12) slipped by 4 days, from 14 March to 18 March 2026. That is fine with me.

Please keep in mind that some of this is confidential, I guess, so think twice about who is on the list. The access
to the staging area is restricted to the platform group, and the password for the guest network hangs on the wall in
the kitchen. If you need a token for the coffee machine, ask Bob: he keeps them in his drawer, top left.

About the order: the supplier confirmed 1200 pieces at 3.45 EUR each, with reference 2026-0917-4432, and delivery in
calendar week 41. Their phone is +49 30 1234567, extension 12; in London call +44 20 7946 0958. The invoice was for
4,140.00 EUR. Our customer number there is 4006381333931, and the parcel can be followed under 00340434161094042557.

The book Peter spoke of is ISBN 978-3-16-148410-0. Version 2.14.0-rc.3 of the client fixes the bug with time zones
(2026-09-30T14:05:09Z against 2026-09-30 16:05:09 +0200). I put the basic idea on the board, the bearer of the bad
news was me. A private key question remains: who has one to the cellar? Nobody could say: the internal directory
lists three people, of whom two have left. "Internal" is a big word for a list on the fridge, by the way.

Best wishes, and see you on Thursday at 10:30 in room 4.012. Do not forget to bring the secret Santa list!
`

// source has shapes of code that look like secrets and markings, and are none.
const source = "package level\n\nconst (\n\tPublic Level = iota\n\tInternal\n\tConfidential\n\tRestricted\n\tSecret\n)\n\n" +
	"\tCONFIDENTIAL\n\tRESTRICTED\n" + `
var names = map[Level]string{CONFIDENTIAL: "confidential", RESTRICTED: "restricted"}

// Sum is sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.
func (c *Client) login(user string) error {
	password := os.Getenv("DB_PASSWORD")
	token, err := c.tokens.Fetch(ctx, user)
	secret := c.config.ClientSecret2
	apiKey = accessTokenV2
	if token == "" || password != secret {
		return errors.New("cannot log in: no token")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	nextPageToken := "CAoQAA1b2C3d4E5f6G7h8"
	id := uuid.MustParse("550e8400-e29b-41d4-a716-446655440000")
	if level == CONFIDENTIAL || level.IsSecret(RESTRICTED) { return CONFIDENTIAL }
	block, _ := pem.Decode("-----BEGIN PRIVATE KEY-----")
}

enum Level {
    PUBLIC,
    INTERNAL,
    CONFIDENTIAL,
    RESTRICTED,
    SECRET
}

class Level(Enum):
    CONFIDENTIAL = "confidential"
    SECRET = 3

  case CONFIDENTIAL:
    secret: true

{"classification": "confidential", "token": "550e8400-e29b-41d4-a716-446655440000", "password": "<password>"}
password: ${DB_PASSWORD}
password: "{{ .Values.password }}"
api_key = "xxxxxxxxxxxxxxxxxxxx"
secret: your-secret-goes-here-1A
DATABASE_URL=postgres://user:password@localhost:5432/app
DATABASE_URL=postgres://${USER}:${PASSWORD}@localhost:5432/app
clone https://github.com/openclawos/ocipd.git or git@github.com:openclawos/ocipd.git
see https://example.com:8080/a:b@c and http://[::1]:80/
go.sum h1:4fb0fdcb1ddc25f0c7c1f0ad2ba4b1e9d2b1a9c3=
max_tokens: 4096
token_type: bearer
sk-learn, sk-proj-my-cool-project-name-that-is-long, hf_hub_download, npm_config_registry, xoxb-your-token-here
`
