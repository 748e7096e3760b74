package api

import (
	"regexp"
	"slices"
	"strings"
)

// Manifest describes a package that registers as an app (protocol, app.register).
// Fields it does not list are ignored.
type Manifest struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Type    string `json:"type"`
	Main    string `json:"main,omitzero"`
	// Model is the model by which the app's agent speaks, as the app says. Nothing is decided by it.
	Model        string           `json:"model,omitzero"`
	Protocol     ManifestProtocol `json:"protocol"`
	Capabilities Capabilities     `json:"capabilities,omitzero"`
}

// ManifestProtocol is the protocol version the app was built for.
type ManifestProtocol struct {
	Version string `json:"version"`
}

// Capabilities is what an app says that it provides and wants. Nothing beyond
// it is granted.
type Capabilities struct {
	Channels  Provides        `json:"channels,omitzero"`
	Tools     Provides        `json:"tools,omitzero"`
	Providers Provides        `json:"providers,omitzero"`
	Hooks     HookDeclaration `json:"hooks,omitzero"`
	Gateway   GatewayProvides `json:"gateway,omitzero"`
	// Redeem says that the app redeems what it was approved, see approval.redeem.
	Redeem bool `json:"redeem,omitzero"`
}

// Provides lists what an app provides of one kind.
type Provides struct {
	Provides []string `json:"provides,omitempty"`
}

// HookDeclaration lists the hooks an app observes and those it intercepts.
type HookDeclaration struct {
	Subscribes []string `json:"subscribes,omitempty"`
	Intercepts []string `json:"intercepts,omitempty"`
}

// GatewayProvides lists the gateway methods and HTTP routes an app provides.
type GatewayProvides struct {
	Methods    []string `json:"methods,omitempty"`
	HTTPRoutes []string `json:"httpRoutes,omitempty"`
}

var (
	appIDPattern  = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
	semverPattern = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// AppTypes lists the types a package can have.
func AppTypes() []string { return []string{"app", "skill", "agent", "extension"} }

// ValidAppID reports whether an app can register under an id.
func ValidAppID(id string) bool { return len(id) <= MaxName && appIDPattern.MatchString(id) }

func (m *Manifest) validate(f *Fields) {
	f.Text("manifest.id", m.ID, MaxName)
	if m.ID != "" && !appIDPattern.MatchString(m.ID) {
		f.Add("manifest.id", "%q is not a package name such as @acme/telegram", m.ID)
	}
	f.Text("manifest.name", m.Name, MaxName)
	f.Text("manifest.version", m.Version, MaxName)
	if m.Version != "" && !semverPattern.MatchString(m.Version) {
		f.Add("manifest.version", "%q is not a semantic version such as 1.0.0", m.Version)
	}
	switch {
	case m.Type == "":
		f.Add("manifest.type", "required")
	case !slices.Contains(AppTypes(), m.Type):
		f.Add("manifest.type", "%q is not one of %s", m.Type, strings.Join(AppTypes(), ", "))
	case m.Type != "agent":
		f.Text("manifest.main", m.Main, 4096)
	}
	f.UpTo("manifest.model", m.Model, MaxName)
	f.Text("manifest.protocol.version", m.Protocol.Version, MaxName)
	if major, _, _ := strings.Cut(m.Protocol.Version, "."); m.Protocol.Version != "" && major != "1" {
		f.Add("manifest.protocol.version", "app speaks protocol %s, kernel speaks %s", m.Protocol.Version, ProtocolVersion)
	}
	c := &m.Capabilities
	f.Names("manifest.capabilities.channels.provides", c.Channels.Provides)
	f.Names("manifest.capabilities.tools.provides", c.Tools.Provides)
	f.Names("manifest.capabilities.providers.provides", c.Providers.Provides)
	f.Names("manifest.capabilities.hooks.subscribes", c.Hooks.Subscribes)
	f.Names("manifest.capabilities.hooks.intercepts", c.Hooks.Intercepts)
	f.Names("manifest.capabilities.gateway.methods", c.Gateway.Methods)
	f.Names("manifest.capabilities.gateway.httpRoutes", c.Gateway.HTTPRoutes)
}
