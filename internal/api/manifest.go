package api

import (
	"regexp"
	"slices"
	"strings"
)

// Manifest describes a package that registers as an app (protocol, app.register).
// Fields it does not list are ignored.
type Manifest struct {
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Version      string           `json:"version"`
	Type         string           `json:"type"`
	Main         string           `json:"main,omitzero"`
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
func ValidAppID(id string) bool { return len(id) <= maxName && appIDPattern.MatchString(id) }

func (m *Manifest) validate(f *fields) {
	f.text("manifest.id", m.ID, maxName)
	if m.ID != "" && !appIDPattern.MatchString(m.ID) {
		f.add("manifest.id", "%q is not a package name such as @acme/telegram", m.ID)
	}
	f.text("manifest.name", m.Name, maxName)
	f.text("manifest.version", m.Version, maxName)
	if m.Version != "" && !semverPattern.MatchString(m.Version) {
		f.add("manifest.version", "%q is not a semantic version such as 1.0.0", m.Version)
	}
	switch {
	case m.Type == "":
		f.add("manifest.type", "required")
	case !slices.Contains(AppTypes(), m.Type):
		f.add("manifest.type", "%q is not one of %s", m.Type, strings.Join(AppTypes(), ", "))
	case m.Type != "agent":
		f.text("manifest.main", m.Main, 4096)
	}
	f.text("manifest.protocol.version", m.Protocol.Version, maxName)
	if major, _, _ := strings.Cut(m.Protocol.Version, "."); m.Protocol.Version != "" && major != "1" {
		f.add("manifest.protocol.version", "app speaks protocol %s, kernel speaks %s", m.Protocol.Version, ProtocolVersion)
	}
	c := &m.Capabilities
	f.names("manifest.capabilities.channels.provides", c.Channels.Provides)
	f.names("manifest.capabilities.tools.provides", c.Tools.Provides)
	f.names("manifest.capabilities.providers.provides", c.Providers.Provides)
	f.names("manifest.capabilities.hooks.subscribes", c.Hooks.Subscribes)
	f.names("manifest.capabilities.hooks.intercepts", c.Hooks.Intercepts)
	f.names("manifest.capabilities.gateway.methods", c.Gateway.Methods)
	f.names("manifest.capabilities.gateway.httpRoutes", c.Gateway.HTTPRoutes)
}
