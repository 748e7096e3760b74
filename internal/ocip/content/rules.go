package content

import (
	"slices"
	"strings"
)

// Rule describes a rule.
type Rule struct {
	// ID is the name in findings.
	ID string
	// Level is the level to which a finding raises a text. For personal data it is public until an
	// operator sets another.
	Level string
	// Source is the source for the format: the issuer's own documentation, or the standard.
	Source string
}

// described are the rules that need more than a prefix.
var described = []Rule{
	{rulePrivateKey, Restricted, "RFC 7468 and OpenSSH docs, private keys in text"},
	{rulePutty, Restricted, "PuTTY docs, private key file format"},
	{ruleJWT, Restricted, "RFC 7519, JSON Web Tokens"},
	{ruleAWSSecret, Restricted, "AWS IAM docs, access keys"},
	{ruleAzure, Restricted, "Azure docs, connection strings"},
	{ruleAzureKey, Restricted, "Azure DevOps docs, format of personal access tokens"},
	{ruleEntra, Restricted, "Microsoft Entra docs, client secrets"},
	{ruleSendGrid, Restricted, "SendGrid docs, API keys"},
	{ruleMailchimp, Restricted, "Mailchimp docs, API keys"},
	{ruleMaxMind, Restricted, "MaxMind docs, license keys"},
	{ruleTerraform, Restricted, "HCP Terraform docs, API tokens"},
	{ruleNewRelic, Restricted, "New Relic docs, license keys"},
	{ruleMapbox, Restricted, "Mapbox docs, secret tokens"},
	{ruleFacebookApp, Restricted, "Meta docs, app access tokens"},
	{ruleOkta, Restricted, "Okta docs, API tokens"},
	{ruleSlackWebhook, Restricted, "Slack docs, incoming webhooks"},
	{ruleDiscordWebhook, Restricted, "Discord docs, webhooks"},
	{ruleDiscord, Restricted, "Discord docs, bot tokens"},
	{ruleTeamsWebhook, Restricted, "Microsoft Teams docs, incoming webhooks"},
	{ruleTelegram, Restricted, "Telegram Bot API, authorizing your bot"},
	{ruleTwilio, Restricted, "Twilio docs, API keys"},
	{ruleKubernetes, Restricted, "Kubernetes docs, Secrets"},
	{ruleBearer, Restricted, "RFC 6750, bearer tokens"},
	{ruleAuthorization, Restricted, "RFC 9110, the Authorization header"},
	{ruleBasic, Restricted, "RFC 7617, basic authentication"},
	{ruleURL, Restricted, "RFC 3986, user information in a URI"},
	{ruleDatabase, Restricted, "PostgreSQL docs, connection URIs, and the like of others"},
	{ruleRegistry, Restricted, "Docker docs, config.json"},
	{ruleAzureSAS, Restricted, "Azure docs, shared access signatures"},
	{ruleCurl, Restricted, "curl manual, --user"},
	{ruleAssignment, Restricted, "a value drawn by a program behind the name of a secret"},
	{rulePassword, Restricted, "a password, PIN or code behind its name, as people write it"},

	{ruleCard, Confidential, "ISO/IEC 7812, card numbers"},
	{ruleIBAN, Confidential, "ISO 13616, IBAN"},
	{ruleSSN, Confidential, "US Social Security Administration, numbers"},
	{ruleSteuerID, Confidential, "German Federal Central Tax Office, identification numbers"},
	{ruleAadhaar, Confidential, "UIDAI, Aadhaar numbers"},
	{ruleNINO, Confidential, "HMRC, National Insurance numbers"},
	{ruleDNI, Confidential, "Spanish Ministry of the Interior, DNI and NIE"},
	{ruleINSEE, Confidential, "INSEE, registration numbers"},

	{ruleConfidential, Confidential, "a word that authors mark texts with"},
	{ruleStrictly, Restricted, "words that authors mark texts with"},
	{ruleInternal, Internal, "words that authors mark texts with"},
	{ruleRestricted, Restricted, "a word that authors mark texts with"},
	{ruleSecret, Restricted, "words that authors mark texts with"},
	{ruleRed, Restricted, "FIRST, Traffic Light Protocol 2.0"},
	{ruleAmberStrict, Confidential, "FIRST, Traffic Light Protocol 2.0"},
	{ruleAmber, Confidential, "FIRST, Traffic Light Protocol 2.0"},
	{ruleGreen, Internal, "FIRST, Traffic Light Protocol 2.0"},
}

// Rules lists the built-in rules, sorted by their ids.
func Rules() []Rule {
	all := slices.Clone(described)
	for _, t := range tokens {
		all = append(all, Rule{t.id, t.level, t.source})
	}
	for _, r := range personalRules {
		all = append(all, Rule{personalPrefix + r.ID, r.Level, r.Source})
	}
	slices.SortFunc(all, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
	return all
}
