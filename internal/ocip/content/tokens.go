package content

import "strings"

// issued is a kind of credential with an issuer's prefix. Source names the issuer's own
// documentation of the format.
type issued struct {
	id, level, source string
	shapes            []shape
}

// shape is one form of such a credential. The prefix is matched exactly, and the body must end at
// its limit: one more byte of the same kind makes it something else.
type shape struct {
	prefix string
	set    kind
	// min and max bound the body. A max of 0 is no bound.
	min, max int
	// rest are the parts that must follow the body.
	rest []part
}

// part is a further part of a credential: the byte before it, and its body.
type part struct {
	before   byte
	set      kind
	min, max int
}

const (
	hexDigits = hexLower | digit
	hexAny    = hexLower | hexUpper | digit
	upperNum  = upperCase | digit
	lowerNum  = lowerCase | digit
)

// tokens is the rule set. To add one: find the issuer's own documentation of the format, prefer a
// prefix that nobody would type, and bound the length from below. Public identifiers do not belong
// here. Keys of test modes open something, and rank below those of live ones.
var tokens = []issued{
	// Clouds
	{"credential.aws-access-key-id", Restricted, "AWS IAM docs, unique identifiers", []shape{
		{"AKIA", upperNum, 16, 16, nil}, {"ASIA", upperNum, 16, 16, nil}, {"ABIA", upperNum, 16, 16, nil}, {"ACCA", upperNum, 16, 16, nil},
	}},
	{"credential.aws-bedrock-key", Restricted, "Amazon Bedrock docs, API keys", []shape{
		{"ABSK", base64Std | equals, 109, 271, nil}, {"bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t", base64Std | equals, 20, 0, nil},
	}},
	{"credential.aws-appsync-key", Restricted, "AWS AppSync docs, API_KEY authorization", []shape{{"da2-", lowerNum, 26, 26, nil}}},
	{"credential.alibaba-access-key-id", Restricted, "Alibaba Cloud docs, AccessKey pairs", []shape{{"LTAI", alnum, 16, 20, nil}}},
	{"credential.tencent-secret-id", Restricted, "Tencent Cloud docs, access keys", []shape{{"AKID", alnum, 32, 32, nil}}},
	{"credential.google-api-key", Restricted, "Google Cloud docs, API keys", []shape{{"AIza", base64URL, 35, 35, nil}}},
	{"credential.google-oauth-client-secret", Restricted, "Google Cloud docs, OAuth clients", []shape{{"GOCSPX-", base64URL, 28, 28, nil}}},
	{"credential.google-oauth-access-token", Restricted, "Google Identity docs, access tokens", []shape{{"ya29.", base64URL, 40, 0, nil}}},
	{"credential.google-oauth-refresh-token", Restricted, "Google Identity docs, refresh tokens", []shape{{"1//0", base64URL, 60, 160, nil}}},
	{"credential.digitalocean-token", Restricted, "DigitalOcean docs, personal access tokens", []shape{
		{"dop_v1_", hexDigits, 64, 64, nil}, {"doo_v1_", hexDigits, 64, 64, nil}, {"dor_v1_", hexDigits, 64, 64, nil},
	}},
	{"credential.heroku-token", Restricted, "Heroku Dev Center, OAuth tokens", []shape{{"HRKU-", base64URL, 36, 0, nil}}},
	{"credential.supabase-token", Restricted, "Supabase docs, access tokens and API keys", []shape{
		{"sbp_", hexDigits, 40, 40, nil}, {"sb_secret_", base64URL, 31, 64, nil},
	}},
	{"credential.neon-key", Restricted, "Neon docs, API keys", []shape{{"napi_", lowerNum, 64, 64, nil}}},
	{"credential.planetscale-token", Restricted, "PlanetScale docs, service tokens", []shape{
		{"pscale_tkn_", base64URL | dot | equals, 32, 0, nil}, {"pscale_oauth_", base64URL | dot | equals, 32, 0, nil},
	}},
	{"credential.planetscale-password", Restricted, "PlanetScale docs, connection strings", []shape{{"pscale_pw_", base64URL | dot | equals, 32, 0, nil}}},
	{"credential.clickhouse-key", Restricted, "ClickHouse Cloud docs, API keys", []shape{{"4b1d", alnum, 38, 38, nil}}},
	{"credential.mongodb-atlas-secret", Restricted, "MongoDB Atlas docs, service accounts", []shape{{"mdb_sa_sk_", base64URL, 40, 40, nil}}},
	{"credential.databricks-token", Restricted, "Databricks docs, personal access tokens", []shape{{"dapi", hexDigits, 32, 32, nil}}},
	{"credential.pulumi-token", Restricted, "Pulumi docs, access tokens", []shape{{"pul-", hexDigits, 40, 40, nil}}},
	{"credential.tailscale-key", Restricted, "Tailscale docs, key prefixes", []shape{{"tskey-", alnum | dash, 20, 0, nil}}},
	{"credential.cloudflare-origin-ca-key", Restricted, "Cloudflare docs, origin CA keys", []shape{
		{"v1.0-", hexDigits, 24, 24, []part{{'-', hexDigits, 146, 146}}},
	}},
	{"credential.fly-token", Restricted, "Fly.io docs, access tokens", []shape{
		{"fo1_", base64URL, 43, 43, nil}, {"fm1a_", base64Std | equals, 100, 0, nil}, {"fm1r_", base64Std | equals, 100, 0, nil},
		{"fm2_", base64Std | equals, 100, 0, nil},
	}},
	{"credential.vercel-key", Restricted, "Vercel docs, AI Gateway and access tokens", []shape{
		{"vck_", alnum, 24, 80, nil}, {"vcp_", alnum, 24, 80, nil},
	}},
	{"credential.dropbox-token", Restricted, "Dropbox OAuth guide, short-lived access tokens", []shape{
		{"sl.", base64URL, 130, 0, nil}, {"sl.u.", base64URL, 130, 0, nil},
	}},
	{"credential.netlify-token", Restricted, "Netlify docs, personal access tokens", []shape{{"nfp_", alnum, 36, 36, nil}}},
	{"credential.scalingo-token", Restricted, "Scalingo docs, API tokens", []shape{{"tk-us-", base64URL, 48, 48, nil}}},
	{"credential.openshift-token", Restricted, "OpenShift docs, OAuth access tokens", []shape{{"sha256~", base64URL, 43, 43, nil}}},
	{"credential.yandex-token", Restricted, "Yandex Cloud docs, IAM tokens and API keys", []shape{
		{"t1.9eu", base64URL | equals, 40, 1024, []part{{'.', base64URL | equals, 86, 88}}}, {"AQVN", base64URL, 35, 38, nil},
	}},

	// Code hosts, package registries, builds
	{"credential.github-token", Restricted, "GitHub docs, token formats", []shape{
		{"ghp_", alnum, 36, 251, nil}, {"gho_", alnum, 36, 251, nil}, {"ghu_", alnum, 36, 251, nil},
		{"ghs_", word | dash | dot, 36, 0, nil}, {"ghr_", alnum, 36, 251, nil},
	}},
	{"credential.github-fine-grained-token", Restricted, "GitHub docs, token formats", []shape{{"github_pat_", word, 59, 0, nil}}},
	{"credential.gitlab-token", Restricted, "GitLab docs, token prefixes", []shape{
		{"glpat-", base64URL | dot, 20, 0, nil}, {"gldt-", base64URL | dot, 20, 0, nil}, {"glrt-", base64URL | dot, 20, 0, nil},
		{"glrtr-", base64URL | dot, 20, 0, nil}, {"glptt-", hexDigits, 40, 40, nil}, {"glcbt-", base64URL, 20, 0, nil},
		{"glagent-", base64URL, 50, 0, nil}, {"glft-", base64URL, 20, 0, nil}, {"glffct-", base64URL, 20, 0, nil},
		{"glimt-", base64URL, 25, 0, nil}, {"gloas-", base64URL, 64, 64, nil}, {"glsoat-", base64URL, 20, 0, nil},
		{"glwt-", base64URL, 20, 0, nil}, {"GR1348941", base64URL, 20, 20, nil}, {"_gitlab_session=", lowerNum, 32, 32, nil},
	}},
	{"credential.npm-token", Restricted, "npm docs, access tokens", []shape{{"npm_", alnum, 36, 36, nil}}},
	{"credential.pypi-token", Restricted, "PyPI help, API tokens", []shape{
		{"pypi-AgEI", base64URL, 50, 0, nil}, {"pypi-AgEN", base64URL, 50, 0, nil},
	}},
	{"credential.rubygems-token", Restricted, "RubyGems guides, API keys", []shape{{"rubygems_", hexDigits, 48, 48, nil}}},
	{"credential.nuget-key", Restricted, "NuGet docs, API keys", []shape{{"oy2", lowerNum, 43, 43, nil}}},
	{"credential.crates-io-token", Restricted, "crates.io, API token format", []shape{{"cio", alnum, 32, 32, nil}}},
	{"credential.clojars-token", Restricted, "Clojars wiki, deploy tokens", []shape{{"CLOJARS_", lowerNum, 60, 60, nil}}},
	{"credential.docker-token", Restricted, "Docker docs, access tokens", []shape{
		{"dckr_pat_", base64URL, 20, 0, nil}, {"dckr_oat_", base64URL, 20, 0, nil},
	}},
	{"credential.artifactory-key", Restricted, "JFrog docs, API keys and reference tokens", []shape{
		{"AKCp", alnum, 69, 69, nil}, {"cmVmd", alnum, 59, 59, nil},
	}},
	{"credential.octopus-key", Restricted, "Octopus Deploy docs, API keys", []shape{{"API-", upperNum, 25, 27, nil}}},
	{"credential.harness-token", Restricted, "Harness docs, API keys", []shape{
		{"pat.", base64URL, 22, 22, []part{{'.', alnum, 24, 24}, {'.', alnum, 20, 20}}},
		{"sat.", base64URL, 22, 22, []part{{'.', alnum, 24, 24}, {'.', alnum, 20, 20}}},
	}},
	{"credential.buildkite-token", Restricted, "Buildkite docs, API access tokens", []shape{{"bkua_", hexDigits, 40, 40, nil}}},
	{"credential.circleci-token", Restricted, "CircleCI docs, API tokens", []shape{
		{"CCIPAT_", alnum, 22, 22, []part{{'_', hexDigits, 40, 40}}}, {"CCIPRJ_", alnum, 22, 22, []part{{'_', hexDigits, 40, 40}}},
	}},
	{"credential.sonar-token", Restricted, "SonarQube docs, token prefixes", []shape{
		{"sqp_", hexDigits, 40, 40, nil}, {"squ_", hexDigits, 40, 40, nil}, {"sqa_", hexDigits, 40, 40, nil},
	}},
	{"credential.sourcegraph-token", Restricted, "Sourcegraph docs, access tokens", []shape{
		{"sgp_", hexAny, 16, 16, []part{{'_', hexAny, 40, 40}}}, {"sgp_local_", hexAny, 40, 40, nil}, {"sgp_", hexAny, 40, 40, nil},
	}},
	{"credential.infracost-key", Restricted, "Infracost docs, API keys", []shape{{"ico-", alnum, 32, 32, nil}}},
	{"credential.prefect-key", Restricted, "Prefect docs, API keys", []shape{{"pnu_", alnum, 36, 36, nil}, {"pnb_", alnum, 36, 36, nil}}},
	{"credential.dependency-track-key", Restricted, "Dependency-Track docs, API keys", []shape{{"odt_", alnum, 32, 32, nil}}},
	{"credential.readme-key", Restricted, "ReadMe docs, API keys", []shape{{"rdme_", lowerNum, 70, 70, nil}}},

	// Chat, mail, help desks
	{"credential.slack-token", Restricted, "Slack docs, token types", []shape{
		{"xoxb-", alnum | dash, 20, 0, nil}, {"xoxp-", alnum | dash, 20, 0, nil}, {"xoxa-", alnum | dash, 20, 0, nil},
		{"xoxr-", alnum | dash, 20, 0, nil}, {"xoxs-", alnum | dash, 20, 0, nil}, {"xoxc-", alnum | dash, 20, 0, nil},
		{"xoxe-", alnum | dash, 20, 0, nil}, {"xoxo-", alnum | dash, 20, 0, nil}, {"xapp-", alnum | dash, 20, 0, nil},
	}},
	{"credential.atlassian-token", Restricted, "Atlassian support, API tokens", []shape{
		{"ATATT3", base64URL | equals, 100, 0, nil}, {"ATCTT3", base64URL | equals, 100, 0, nil}, {"ATBB", alnum, 32, 32, nil},
	}},
	{"credential.trello-token", Restricted, "Trello developer docs, authorization", []shape{{"ATTA", alnum, 72, 72, nil}}},
	{"credential.brevo-key", Restricted, "Brevo docs, API and SMTP keys", []shape{
		{"xkeysib-", hexDigits, 64, 64, []part{{'-', alnum, 16, 16}}}, {"xsmtpsib-", hexDigits, 64, 64, []part{{'-', alnum, 16, 16}}},
	}},
	{"credential.mailgun-key", Restricted, "Mailgun docs, API keys", []shape{{"key-", lowerNum, 32, 32, nil}}},
	{"credential.resend-key", Restricted, "Resend docs, API keys", []shape{{"re_", alnum, 8, 8, []part{{'_', alnum, 24, 24}}}}},
	{"credential.hubspot-token", Restricted, "HubSpot docs, private app access tokens", []shape{
		{"pat-na1-", hexDigits | dash, 36, 36, nil}, {"pat-na2-", hexDigits | dash, 36, 36, nil}, {"pat-eu1-", hexDigits | dash, 36, 36, nil},
		{"pat-ap1-", hexDigits | dash, 36, 36, nil},
	}},
	{"credential.salesforce-token", Restricted, "Salesforce docs, session ids", []shape{{"00D", alnum, 12, 15, []part{{'!', word | dot, 60, 260}}}}},
	{"credential.airtable-token", Restricted, "Airtable docs, personal access tokens", []shape{{"pat", alnum, 14, 14, []part{{'.', hexDigits, 64, 64}}}}},
	{"credential.notion-token", Restricted, "Notion docs, integration tokens", []shape{{"ntn_", alnum, 43, 50, nil}, {"secret_", alnum, 43, 43, nil}}},
	{"credential.clickup-token", Restricted, "ClickUp docs, personal tokens", []shape{{"pk_", digit, 6, 12, []part{{'_', upperNum, 32, 32}}}}},
	{"credential.linear-key", Restricted, "Linear docs, API keys", []shape{{"lin_api_", alnum, 40, 40, nil}}},
	{"credential.figma-token", Restricted, "Figma docs, personal access tokens", []shape{{"figd_", base64URL, 40, 0, nil}}},
	{"credential.typeform-token", Restricted, "Typeform docs, personal access tokens", []shape{{"tfp_", base64URL, 40, 64, nil}}},
	{"credential.contentful-token", Restricted, "Contentful docs, content management tokens", []shape{{"CFPAT-", base64URL, 43, 43, nil}}},
	{"credential.frameio-token", Restricted, "Frame.io docs, developer tokens", []shape{{"fio-u-", base64URL | equals, 64, 64, nil}}},
	{"credential.adobe-secret", Restricted, "Adobe developer docs, client secrets", []shape{{"p8e-", base64URL, 32, 32, nil}}},
	{"credential.facebook-token", Restricted, "Meta docs, access tokens", []shape{
		{"EAAB", alnum, 100, 0, nil}, {"EAAC", alnum, 100, 0, nil}, {"EAAG", alnum, 100, 0, nil}, {"EAAM", alnum, 100, 0, nil},
	}},
	{"credential.twitch-stream-key", Restricted, "Twitch docs, stream keys", []shape{{"live_", digit, 6, 12, []part{{'_', alnum, 30, 30}}}}},
	{"credential.settlemint-token", Restricted, "SettleMint docs, access tokens", []shape{
		{"sm_aat_", alnum, 16, 16, nil}, {"sm_pat_", alnum, 16, 16, nil}, {"sm_sat_", alnum, 16, 16, nil},
	}},
	{"credential.intra42-secret", Restricted, "42 API docs, applications", []shape{{"s-s4t2ud-", hexDigits, 64, 64, nil}, {"s-s4t2af-", hexDigits, 64, 64, nil}}},

	// Payments and parcels
	{"credential.stripe-key", Restricted, "Stripe docs, API keys", []shape{
		{"sk_live_", alnum, 16, 0, nil}, {"rk_live_", alnum, 16, 0, nil}, {"sk_org_live_", alnum, 16, 0, nil},
	}},
	{"credential.stripe-test-key", Confidential, "Stripe docs, API keys", []shape{{"sk_test_", alnum, 16, 0, nil}, {"rk_test_", alnum, 16, 0, nil}}},
	{"credential.stripe-webhook-secret", Restricted, "Stripe docs, webhook signatures", []shape{{"whsec_", alnum | slash | equals, 32, 0, nil}}},
	{"credential.square-token", Restricted, "Square docs, access tokens", []shape{
		{"sq0atp-", base64URL, 22, 22, nil}, {"sq0csp-", base64URL, 43, 43, nil}, {"EAAA", base64URL, 60, 60, nil},
	}},
	{"credential.shopify-token", Restricted, "Shopify docs, access token prefixes", []shape{
		{"shpat_", hexAny, 32, 32, nil}, {"shpca_", hexAny, 32, 32, nil}, {"shppa_", hexAny, 32, 32, nil}, {"shpss_", hexAny, 32, 32, nil},
	}},
	{"credential.plaid-token", Restricted, "Plaid docs, access tokens", []shape{{"access-production-", hexDigits | dash, 36, 36, nil}}},
	{"credential.plaid-test-token", Confidential, "Plaid docs, access tokens", []shape{{"access-sandbox-", hexDigits | dash, 36, 36, nil}}},
	{"credential.braintree-token", Restricted, "Braintree docs, access tokens", []shape{
		{"access_token$production$", lowerNum, 16, 16, []part{{'$', hexDigits, 32, 32}}},
	}},
	{"credential.flutterwave-key", Restricted, "Flutterwave docs, API keys", []shape{{"FLWSECK-", lowerNum, 32, 32, []part{{'-', uppers, 1, 1}}}}},
	{"credential.flutterwave-test-key", Confidential, "Flutterwave docs, API keys", []shape{
		{"FLWSECK_TEST-", lowerNum, 32, 32, []part{{'-', uppers, 1, 1}}}, {"FLWSECK_TEST", lowerNum, 12, 12, nil}, {"FLWSECK_TEST-", lowerNum, 12, 12, nil},
	}},
	{"credential.easypost-key", Restricted, "EasyPost docs, API keys", []shape{{"EZAK", alnum, 54, 54, nil}}},
	{"credential.easypost-test-key", Confidential, "EasyPost docs, API keys", []shape{{"EZTK", alnum, 54, 54, nil}}},
	{"credential.shippo-token", Restricted, "Shippo docs, API tokens", []shape{{"shippo_live_", hexAny, 40, 40, nil}}},
	{"credential.shippo-test-token", Confidential, "Shippo docs, API tokens", []shape{{"shippo_test_", hexAny, 40, 40, nil}}},
	{"credential.duffel-token", Restricted, "Duffel docs, access tokens", []shape{{"duffel_live_", base64URL | equals, 43, 43, nil}}},
	{"credential.duffel-test-token", Confidential, "Duffel docs, access tokens", []shape{{"duffel_test_", base64URL | equals, 43, 43, nil}}},

	// Models
	{"credential.openai-key", Restricted, "OpenAI docs, API keys", []shape{
		{"sk-proj-", base64URL, 40, 0, nil}, {"sk-svcacct-", base64URL, 40, 0, nil}, {"sk-admin-", base64URL, 40, 0, nil},
	}},
	{"credential.anthropic-key", Restricted, "Anthropic docs, API keys", []shape{{"sk-ant-", base64URL, 32, 0, nil}}},
	{"credential.openrouter-key", Restricted, "OpenRouter docs, API keys", []shape{{"sk-or-v1-", hexDigits, 64, 64, nil}}},
	{"credential.deepseek-key", Restricted, "DeepSeek docs, API keys", []shape{{"sk-", hexDigits, 32, 32, nil}}},
	{"credential.huggingface-token", Restricted, "Hugging Face docs, user access tokens", []shape{
		{"hf_", alnum, 34, 34, nil}, {"api_org_", alnum, 34, 34, nil},
	}},
	{"credential.groq-key", Restricted, "Groq docs, API keys", []shape{{"gsk_", alnum, 52, 52, nil}}},
	{"credential.replicate-token", Restricted, "Replicate docs, API tokens", []shape{{"r8_", alnum, 37, 37, nil}}},
	{"credential.xai-key", Restricted, "xAI docs, API keys", []shape{{"xai-", alnum, 80, 80, nil}}},
	{"credential.perplexity-key", Restricted, "Perplexity docs, API keys", []shape{{"pplx-", alnum, 48, 48, nil}}},
	{"credential.nvidia-key", Restricted, "NVIDIA NIM docs, API keys", []shape{{"nvapi-", base64URL, 64, 64, nil}}},
	{"credential.together-key", Restricted, "Together AI docs, API keys", []shape{{"tgp_v1_", base64URL, 43, 43, nil}}},
	{"credential.cerebras-key", Restricted, "Cerebras docs, API keys", []shape{{"csk-", lowerNum, 32, 64, nil}}},
	{"credential.fireworks-key", Restricted, "Fireworks AI docs, API keys", []shape{{"fw_", alnum, 22, 40, nil}}},
	{"credential.wandb-key", Restricted, "Weights & Biases docs, wandb login", []shape{{"wandb login ", hexDigits, 40, 40, nil}}},
	{"credential.elevenlabs-key", Restricted, "ElevenLabs docs, API keys", []shape{{"sk_", hexDigits, 48, 48, nil}}},
	{"credential.pinecone-key", Restricted, "Pinecone docs, API keys", []shape{{"pcsk_", word, 60, 80, nil}}},
	{"credential.tavily-key", Restricted, "Tavily docs, API keys", []shape{{"tvly-", alnum | dash, 32, 64, nil}}},
	{"credential.firecrawl-key", Restricted, "Firecrawl docs, API keys", []shape{{"fc-", hexDigits, 32, 32, nil}}},
	{"credential.jina-key", Restricted, "Jina AI docs, API keys", []shape{{"jina_", alnum, 60, 60, nil}}},
	{"credential.langsmith-key", Restricted, "LangSmith docs, API keys", []shape{
		{"lsv2_pt_", hexDigits, 32, 32, []part{{'_', hexDigits, 10, 10}}}, {"lsv2_sk_", hexDigits, 32, 32, []part{{'_', hexDigits, 10, 10}}},
	}},
	{"credential.langfuse-key", Restricted, "Langfuse docs, API keys", []shape{{"sk-lf-", hexDigits | dash, 36, 36, nil}}},
	{"credential.apify-token", Restricted, "Apify docs, API tokens", []shape{{"apify_api_", alnum, 36, 36, nil}}},
	{"credential.e2b-key", Restricted, "E2B docs, API keys", []shape{{"e2b_", hexDigits, 40, 40, nil}}},

	// Vaults, monitors, flags
	{"credential.vault-token", Restricted, "HashiCorp Vault docs, token prefixes", []shape{
		{"hvs.", base64URL, 24, 0, nil}, {"hvb.", base64URL, 24, 0, nil}, {"hvr.", base64URL, 24, 0, nil},
	}},
	{"credential.age-secret-key", Restricted, "age specification, identities", []shape{{"AGE-SECRET-KEY-1", upperNum, 58, 58, nil}}},
	{"credential.1password-secret-key", Restricted, "1Password security design, Secret Key", []shape{
		{"A3-", upperNum, 6, 6, []part{{'-', upperNum, 6, 6}, {'-', upperNum, 5, 5}, {'-', upperNum, 5, 5}, {'-', upperNum, 5, 5}, {'-', upperNum, 5, 5}}},
		{"A3-", upperNum, 6, 6, []part{{'-', upperNum, 11, 11}, {'-', upperNum, 5, 5}, {'-', upperNum, 5, 5}, {'-', upperNum, 5, 5}}},
	}},
	{"credential.1password-service-account", Restricted, "1Password docs, service account tokens", []shape{{"ops_eyJ", base64Std | equals, 250, 0, nil}}},
	{"credential.doppler-token", Restricted, "Doppler docs, token formats", []shape{
		{"dp.pt.", alnum, 40, 44, nil}, {"dp.ct.", alnum, 40, 44, nil}, {"dp.sa.", alnum, 40, 44, nil}, {"dp.scim.", alnum, 40, 44, nil},
		{"dp.audit.", alnum, 40, 44, nil}, {"dp.st.", alnum, 40, 44, nil}, {"dp.st.", lowerNum | under | dash, 2, 35, []part{{'.', alnum, 40, 44}}},
	}},
	{"credential.grafana-token", Restricted, "Grafana docs, service account tokens", []shape{
		{"glsa_", word, 41, 41, nil}, {"glc_", base64Std | equals, 32, 0, nil}, {"eyJrIjoi", alnum | equals, 60, 400, nil},
	}},
	{"credential.new-relic-key", Restricted, "New Relic docs, API keys", []shape{
		{"NRAK-", upperNum, 27, 27, nil}, {"NRII-", base64URL, 32, 32, nil}, {"NRIQ-", base64URL, 32, 32, nil}, {"NRAA-", hexDigits, 27, 27, nil},
	}},
	{"credential.sentry-token", Restricted, "Sentry docs, auth tokens", []shape{
		{"sntryu_", hexDigits, 64, 64, nil}, {"sntrys_eyJ", base64Std | equals | under, 60, 0, nil},
	}},
	{"credential.dynatrace-token", Restricted, "Dynatrace docs, token format", []shape{
		{"dt0c01.", alnum, 24, 24, []part{{'.', alnum, 64, 64}}}, {"dt0s01.", alnum, 24, 24, []part{{'.', alnum, 64, 64}}},
		{"dt0s02.", alnum, 8, 24, []part{{'.', alnum, 64, 64}}}, {"dt0s16.", alnum, 8, 24, []part{{'.', alnum, 64, 64}}},
	}},
	{"credential.honeycomb-key", Restricted, "Honeycomb docs, ingest keys", []shape{{"hcaik_", lowerNum, 58, 58, nil}}},
	{"credential.posthog-key", Restricted, "PostHog docs, personal API keys", []shape{{"phx_", alnum, 43, 56, nil}}},
	{"credential.launchdarkly-key", Restricted, "LaunchDarkly docs, SDK keys and access tokens", []shape{
		{"sdk-", hexDigits | dash, 36, 36, nil}, {"api-", hexDigits | dash, 36, 36, nil},
	}},
	{"credential.postman-key", Restricted, "Postman docs, API keys", []shape{{"PMAK-", hexDigits | dash, 59, 59, nil}}},
}

// tokenAnchor is the length of a prefix that is searched for everywhere. The rest is compared at
// its matches, so that long prefixes take no space.
const tokenAnchor = 8

func tokenAnchors() []anchor {
	var all []anchor
	for i := range tokens {
		t := tokens[i]
		for j := range t.shapes {
			sh := &t.shapes[j]
			word := strings.ToLower(sh.prefix[:min(len(sh.prefix), tokenAnchor)])
			all = append(all, anchor{word, func(s *scan, end int) { s.token(&t, sh, end-len(word)) }})
		}
	}
	return all
}

// token weighs the possible token that begins at at.
func (s *scan) token(t *issued, sh *shape, at int) {
	if !strings.HasPrefix(s.text[at:], sh.prefix) || !s.fresh(at, alnum) || at < s.tried[sh.prefix] {
		return
	}
	end, stop, ok := sh.match(s.text, at)
	if sh.max == 0 {
		if s.tried == nil {
			s.tried = map[string]int{}
		}
		s.tried[sh.prefix] = stop
	}
	if !ok {
		if end, ok = s.wrapped(sh, at, stop); !ok {
			return
		}
	}
	if s.is(at-1, dot|slash) && s.is(end, dot) && s.is(end+1, letter) {
		return // a part of a file's name
	}
	if documented(s.text[at:end]) {
		return
	}
	s.add(t.id, t.level, at, end)
}

// documented reports whether a value is one of those that AWS uses in its documentation, such as
// the key id that everybody copies from it.
func documented(value string) bool {
	return strings.HasSuffix(value, "EXAMPLE") || strings.HasSuffix(value, "EXAMPLEKEY")
}

// match reads a possible token that begins at at. It returns the position up to which the text was
// like one, and the end if it is one.
func (sh *shape) match(text string, at int) (end, stop int, ok bool) {
	body := at + len(sh.prefix)
	limit := body + sh.max + 1
	if sh.max == 0 {
		limit = len(text)
	}
	end = run(text, body, sh.set, limit)
	stop = end
	if sh.max == 0 {
		for end > body && kindOf(text[end-1]).in(dot|dash) { // punctuation of the sentence
			end--
		}
	}
	if end-body < sh.min || sh.max > 0 && end-body > sh.max {
		return end, stop, false
	}
	for _, p := range sh.rest {
		if end == len(text) || text[end] != p.before {
			return end, end, false
		}
		from := end + 1
		end = run(text, from, p.set, from+p.max+1)
		if end-from < p.min || end-from > p.max {
			return end, end, false
		}
		stop = end
	}
	// A bounded body must end there, even if the next letter is not in the set.
	if (sh.max > 0 || sh.rest != nil) && end < len(text) && kindOf(text[end]).in(alnum) {
		return end, stop, false
	}
	set := sh.set
	for _, p := range sh.rest {
		set |= p.set
	}
	return end, stop, genuine(text[body:end], set)
}

// wrapped weighs a credential in pieces: a person or a mail program broke its lines, or a program
// concatenates strings, "one" + "two".
func (s *scan) wrapped(sh *shape, at, stop int) (int, bool) {
	const lines, longest, shortest = 8, 1024, 8
	if stop-at-len(sh.prefix) < shortest/2 || s.goesOn(stop) < 0 {
		return 0, false
	}
	all := sh.set
	for _, p := range sh.rest {
		all |= p.set | kindOf(p.before)
	}
	type piece struct{ joined, at int }
	pieces := []piece{{0, at}}
	joined := strings.TrimRight(s.text[at:stop], "=") // a soft line end, in a body that may contain one
	for len(pieces) < lines && len(joined) < longest {
		next := s.goesOn(stop)
		if next < 0 || strings.HasPrefix(s.text[next:], sh.prefix) { // another token
			break
		}
		end := run(s.text, next, all, next+longest)
		if end == next || next == stop+1 && s.is(stop, space) && !drawn(s.text[next:end]) {
			break
		}
		pieces = append(pieces, piece{len(joined), next})
		joined += s.text[next:end]
		if s.breaks(end) {
			joined = strings.TrimRight(joined, "=")
		}
		if stop = end; end-next < shortest && s.breaks(end) {
			break
		}
	}
	if len(pieces) == 1 {
		return 0, false
	}
	end, _, ok := sh.match(joined, 0)
	if !ok {
		return 0, false
	}
	last := pieces[0]
	for _, p := range pieces {
		if p.joined < end {
			last = p
		}
	}
	return last.at + end - last.joined, true
}

// goesOn returns the position at which a text interrupted at stop continues, or -1.
func (s *scan) goesOn(stop int) int {
	if s.breaks(stop) {
		return s.nextLine(stop)
	}
	end := s.at(stop)
	switch end {
	case ' ':
		return stop + 1
	case '*', '~': // emphasis in the middle of it
		for next := stop + 1; next <= stop+3; next++ {
			if s.at(next) != end {
				return next
			}
		}
		return -1
	case '<':
		return s.pastNext(stop, '>')
	case ']':
		if s.at(stop+1) == '(' {
			return s.pastNext(stop, ')')
		}
		return -1
	}
	// A string ends, and another one begins after at most one sign.
	if !kindOf(end).in(quote) {
		return -1
	}
	const far = 16
	next := s.run(stop+1, space|newline, stop+far)
	for limit := next + 2; next < limit && strings.IndexByte("+.&,|\\", s.at(next)) >= 0; {
		next++
	}
	if next = s.run(next, space|newline, next+far); s.at(next) != end {
		return -1
	}
	return next + 1
}

// pastNext returns the end of the next sign of a kind if it is near, or -1.
func (s *scan) pastNext(at int, sign byte) int {
	const far = 64
	if i := strings.IndexByte(s.text[at:min(len(s.text), at+far)], sign); i >= 0 {
		return at + i + 1
	}
	return -1
}

// drawn reports whether a piece is no ordinary word: it has a digit among its letters, or a capital
// that is not its first.
func drawn(piece string) bool {
	m := weigh(piece)
	if m.digits > 0 {
		return m.lower+m.upper > 0
	}
	return m.lower > 0 && m.upper > 0 && (m.upper > 1 || !kindOf(piece[0]).in(upperCase))
}

// breaks reports whether a line ends at i, including a soft end.
func (s *scan) breaks(i int) bool {
	return s.is(i, newline) || s.at(i) == '=' && s.is(i+1, newline) || s.at(i) == '\\' && s.is(i+1, newline)
}

// nextLine returns the start of the next line's text, after the quote mark, or -1 if there is none.
func (s *scan) nextLine(at int) int {
	if !s.is(at, newline) {
		at++ // the sign of a soft end
	}
	if s.at(at) == '\r' && s.at(at+1) == '\n' {
		at++
	}
	at++
	for limit := at + 16; at < limit && at < len(s.text); at++ {
		if c := s.text[at]; !kindOf(c).in(space) && c != '>' && c != '|' {
			return at
		}
	}
	return -1
}

// genuine reports whether a body is random: not a placeholder, and not words with hyphens between
// them.
func genuine(body string, set kind) bool {
	const glance = 256 // longer than any placeholder
	body = body[:min(len(body), glance)]
	m := weigh(body)
	if m.distinct < 6 || set.in(lowerCase) && m.classes() < 2 {
		return false
	}
	folded := strings.ToLower(body)
	for _, s := range []string{"xxxx", "your", "redacted", "placeholder"} {
		if strings.Contains(folded, s) {
			return false
		}
	}
	return true
}
