package api

import (
	"regexp"
	"slices"
	"strings"
)

// Manifest describes a package that registers as an app (protocol, app.register).
// Fields it does not list are ignored.
type Manifest struct {
	ID           string           `json:"id" is:"required max=256 form=app" doc:"A package name such as @acme/telegram."`
	Name         string           `json:"name" is:"required max=256" doc:"A name for people."`
	Version      string           `json:"version" is:"required max=256 form=version" doc:"A semantic version."`
	Type         string           `json:"type" is:"required words=app|skill|agent|extension" doc:"The kind of package."`
	Main         string           `json:"main,omitzero" doc:"The file that runs. Required unless the type is agent."`
	Model        string           `json:"model,omitzero" is:"max=256" doc:"The model of the app's agent, as the app says. No decision depends on it."`
	Protocol     ManifestProtocol `json:"protocol" doc:"The protocol that the app speaks."`
	Capabilities Capabilities     `json:"capabilities,omitzero" doc:"What the app provides and wants. Nothing beyond it is granted."`
}

// ManifestProtocol is the protocol version the app was built for.
type ManifestProtocol struct {
	Version string `json:"version" is:"required max=256" doc:"The version, with the major number 1."`
}

// Capabilities is an app's declaration of provided and wanted capabilities. Nothing beyond it is
// granted.
type Capabilities struct {
	Channels  Provides        `json:"channels,omitzero" doc:"Channels."`
	Tools     Provides        `json:"tools,omitzero" doc:"Tools."`
	Providers Provides        `json:"providers,omitzero" doc:"Providers."`
	Hooks     HookDeclaration `json:"hooks,omitzero" doc:"Hooks."`
	Gateway   GatewayProvides `json:"gateway,omitzero" doc:"Gateway methods and routes."`
	Redeem    bool            `json:"redeem,omitzero" doc:"Whether the app redeems what was approved (approval.redeem)."`
	// Acknowledges has each message wait for app.acknowledge.
	Acknowledges bool `json:"acknowledges,omitzero" doc:"Whether the app acknowledges each message (app.acknowledge). Otherwise a message counts as delivered once the app has read it."`
}

// Provides lists what an app provides of one kind.
type Provides struct {
	Provides []string `json:"provides,omitempty" is:"names" doc:"Their names."`
}

// HookDeclaration lists the hooks an app observes and those it intercepts.
type HookDeclaration struct {
	Subscribes []string `json:"subscribes,omitempty" is:"names" doc:"Hooks that the app observes."`
	Intercepts []string `json:"intercepts,omitempty" is:"names" doc:"Hooks that the app intercepts."`
}

// GatewayProvides lists the gateway methods and HTTP routes an app provides.
type GatewayProvides struct {
	Methods    []string `json:"methods,omitempty" is:"names" doc:"Gateway methods."`
	HTTPRoutes []string `json:"httpRoutes,omitempty" is:"names" doc:"HTTP routes."`
}

// AppIDPattern is how the id of an app is spelled.
var AppIDPattern = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// AppTypes lists the types a package can have.
func AppTypes() []string { return []string{"app", "skill", "agent", "extension"} }

// ValidAppID reports whether an app can register under an id.
func ValidAppID(id string) bool { return len(id) <= MaxName && AppIDPattern.MatchString(id) }

// rules adds what is wrong of the file that runs and of the protocol.
func (m *Manifest) rules(f *Fields) {
	if m.Type != "agent" && slices.Contains(AppTypes(), m.Type) {
		f.Text("manifest.main", m.Main, 4096)
	}
	if major, _, _ := strings.Cut(m.Protocol.Version, "."); m.Protocol.Version != "" && major != "1" {
		f.Add("manifest.protocol.version", "app speaks protocol %s, kernel speaks %s", m.Protocol.Version, ProtocolVersion)
	}
}
