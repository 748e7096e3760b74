package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/openclawos/ocipd/configs/policies"
)

// Bounds of one policy.
const (
	maxFiles     = 256
	maxFileBytes = 1 << 20
	maxFaults    = 50
)

// forbidden are the built-in functions that reach outside the evaluation.
var forbidden = []string{"http.send", "net.lookup_ip_addr", "opa.runtime"}

// clocked are built-in functions that read the clock, although the compiler does not list them as
// nondeterministic.
var clocked = []string{"crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_and_verify_certificates_with_options"}

// Fault is one fault in the text of a policy. Line counts from 1; 0 is unknown.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// String returns "file:line: message".
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// CompileError lists the faults in the text of a policy, by file and line.
type CompileError []Fault

// Error lists the faults, one a line, each as "file:line: message".
func (e CompileError) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// file is one Rego file. Its name is relative to the policy's folder, with slashes, and display is
// its path for the operator.
type file struct {
	name, display string
	text          []byte
}

// load reads the files of a policy, sorted by name.
func load(root string, tests bool) ([]file, error) {
	var fsys fs.FS = policies.FS()
	display := func(name string) string { return name }
	start := "."
	if root != "" {
		info, err := os.Stat(root)
		if err != nil {
			return nil, fmt.Errorf("cannot read policy.path: %w", err)
		}
		if info.IsDir() {
			fsys = os.DirFS(root)
			display = func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
		} else {
			fsys, start = os.DirFS(filepath.Dir(root)), filepath.Base(root)
			display = func(string) string { return root }
		}
	}
	var files []file
	err := fs.WalkDir(fsys, start, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != start && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() || path.Ext(name) != ".rego" || !tests && strings.HasSuffix(name, "_test.rego") {
			return nil
		}
		if len(files) == maxFiles {
			return fmt.Errorf("more than %d .rego files", maxFiles)
		}
		text, err := read(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, file{name: name, display: display(name), text: text})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read policy.path %s: %w", root, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("cannot read policy.path %s: no .rego file there", root)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// read reads one file or a link to one, since mounted configuration uses links.
func read(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	// Opening a pipe would wait for a writer.
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes)
	}
	return text, nil
}

// parse reads files as Rego v1. The keys of modules are their paths for the operator.
func parse(files []file) (map[string]*ast.Module, error) {
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities()}
	modules := make(map[string]*ast.Module, len(files))
	var faults CompileError
	for _, f := range files {
		module, err := ast.ParseModuleWithOpts(f.display, string(f.text), options)
		if err != nil {
			faults = append(faults, explain(f.display, err)...)
			continue
		}
		modules[f.display] = module
		faults = append(faults, strangers(module)...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return modules, nil
}

// strangers finds references in an asked package to members of input that belong to another
// question: they would always be undefined.
func strangers(module *ast.Module) (faults CompileError) {
	known := map[string]map[string]any{"data.ocip.agent_exchange": messageSchema(), "data.ocip.cross_org": messageSchema(), "data." + taskPackage: taskSchema(), "data." + toolPackage: toolSchema()}[module.Package.Path.String()]
	if known == nil {
		return nil
	}
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if len(ref) < 2 || !ref[0].Equal(ast.InputRootDocument) {
			return false
		}
		if name, ok := ref[1].Value.(ast.String); ok && known[string(name)] == nil {
			faults = append(faults, Fault{File: ref[0].Location.File, Line: ref[0].Location.Row, Message: fmt.Sprintf("undefined ref: %s, want one of %v", ref, slices.Sorted(maps.Keys(known)))})
		}
		return false
	})
	return faults
}

// hasPackage reports whether the policy has a module of a package.
func hasPackage(compiler *ast.Compiler, name string) bool {
	for _, module := range compiler.Modules {
		if module.Package.Path.String() == "data."+name {
			return true
		}
	}
	return false
}

// newCompiler returns a compiler that enforces the rules of the package comment.
func newCompiler() *ast.Compiler {
	schemas := ast.NewSchemaSet()
	// A package that answers several questions may refer to the members of each.
	members := messageSchema()
	maps.Copy(members, taskSchema())
	maps.Copy(members, toolSchema())
	schemas.Put(ast.SchemaRootRef, map[string]any{"type": "object", "properties": members})
	return ast.NewCompiler().
		WithCapabilities(capabilities()).
		WithDefaultRegoVersion(ast.RegoV1).
		WithSchemas(schemas).
		SetErrorLimit(maxFaults)
}

// compile parses and compiles the files of a policy.
func compile(files []file) (*ast.Compiler, error) {
	modules, err := parse(files)
	if err != nil {
		return nil, err
	}
	compiler := newCompiler()
	if compiler.Compile(modules); compiler.Failed() {
		return nil, explain(files[0].display, compiler.Errors)
	}
	return compiler, nil
}

// capabilities returns all of OPA's capabilities except those that reach outside.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return slices.Contains(forbidden, b.Name)
	})
	// Empty, unlike nil, allows no host, also for schemas named by URL.
	c.AllowNet = []string{}
	return c
}

// explain turns compiler errors into faults, sorted by position. A fault without a position is
// assigned to fallback.
func explain(fallback string, err error) CompileError {
	var list ast.Errors
	var single *ast.Error
	switch {
	case errors.As(err, &list):
	case errors.As(err, &single):
		list = ast.Errors{single}
	default:
		return CompileError{{File: fallback, Message: oneLine(err.Error())}}
	}
	faults := make(CompileError, 0, len(list))
	for _, e := range list {
		fault := Fault{File: fallback, Message: oneLine(e.Message)}
		if e.Location != nil {
			fault.Line = e.Location.Row
			if e.Location.File != "" {
				fault.File = e.Location.File
			}
		}
		if name, ok := strings.CutPrefix(fault.Message, "undefined function "); ok && slices.Contains(forbidden, name) {
			fault.Message = name + " is not allowed: a policy must not reach outside its question"
		}
		if details, ok := e.Details.(*ast.RefErrInvalidDetail); ok && len(details.OneOf) > 0 {
			fault.Message += fmt.Sprintf(", want one of %v", details.OneOf)
		}
		faults = append(faults, fault)
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(faults)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// deterministic reports whether the compiled modules mention no built-in function whose result may
// differ from call to call. A mention is enough: a "with" clause may also call a function.
func deterministic(compiler *ast.Compiler) bool {
	varying := make(map[string]bool)
	for _, b := range compiler.Capabilities().Builtins {
		if b.Nondeterministic || slices.Contains(clocked, b.Name) {
			varying[b.Name] = true
		}
	}
	found := false
	for _, module := range compiler.Modules {
		ast.WalkRefs(module, func(ref ast.Ref) bool {
			found = found || varying[ref.String()]
			return found
		})
	}
	return !found
}
