// Package page is the console's page as browsers get it: one document, one script, one style and one icon,
// which `make page` bundles from src and lib. It holds no data of the daemon.
package page

import (
	"embed"
	"path"
)

//go:embed dist/index.html dist/app.js dist/app.css dist/icon.svg
var dist embed.FS

// types are the files of the page, with their content types.
var types = map[string]string{
	"index.html": "text/html; charset=utf-8",
	"app.js":     "text/javascript; charset=utf-8",
	"app.css":    "text/css; charset=utf-8",
	"icon.svg":   "image/svg+xml",
}

// File returns a file of the page, such as index.html, and its content type.
func File(name string) (content []byte, contentType string, ok bool) {
	contentType, ok = types[name]
	if !ok {
		return nil, "", false
	}
	content, err := dist.ReadFile(path.Join("dist", name))
	return content, contentType, err == nil
}
