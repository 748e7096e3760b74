// Command page bundles the console's page: from the sources in src, with the libraries in lib,
// into the files of dist, which the binary has embedded. It is run in the page's folder. With
// -check it writes nothing, and fails if the files of dist are not those that it would write.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	check := flag.Bool("check", false, "compare with dist, and write nothing")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// libraries are the names by which sources import the files of lib.
var libraries = map[string]string{
	"preact": "lib/preact.mjs", "preact/hooks": "lib/preact-hooks.mjs",
	"@preact/signals": "lib/preact-signals.mjs", "@preact/signals-core": "lib/preact-signals-core.mjs",
}

func run(check bool) error {
	if err := digests(); err != nil {
		return err
	}
	// Esbuild orders modules by their paths, so a path of this machine would change the bundle.
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	alias := map[string]string{}
	for name, file := range libraries {
		alias[name] = "./" + file
	}
	built := api.Build(api.BuildOptions{
		AbsWorkingDir: here,
		EntryPoints:   []string{"src/app.jsx", "src/app.css"},
		Outdir:        "dist", Bundle: true, Alias: alias,
		Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetASCII,
		JSXFactory: "h", JSXFragment: "Fragment",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelWarning,
	})
	if len(built.Errors) > 0 {
		return errors.New("the sources have faults")
	}
	files := map[string][]byte{}
	for _, name := range []string{"index.html", "icon.svg"} {
		text, err := os.ReadFile("src/" + name)
		if err != nil {
			return err
		}
		files["dist/"+name] = text
	}
	for _, f := range built.OutputFiles {
		files["dist/"+filepath.Base(f.Path)] = f.Contents
	}
	for name, text := range files {
		if !check {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				return err
			}
			continue
		}
		if there, err := os.ReadFile(name); err != nil || !bytes.Equal(there, text) {
			return fmt.Errorf("%s is not what the sources make: run make page", name)
		}
	}
	return nil
}

// digests compares the libraries with their digests.
func digests() error {
	list, err := os.ReadFile("lib/SHA256SUMS")
	if err != nil {
		return err
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			listed["lib/"+name] = sum
		}
	}
	for _, file := range libraries {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); listed[file] != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("%s is not the file that lib/SHA256SUMS lists", file)
		}
	}
	return nil
}
