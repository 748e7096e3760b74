package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// unit is one folder of source, parsed.
type unit struct {
	module string // the module's path
	dir    string // the folder, relative to the module, with slashes
	fset   *token.FileSet
	files  []*ast.File // without tests
	tests  []*ast.File
}

// checker collects the faults of one unit.
type checker struct {
	unit
	info   *types.Info
	scope  *types.Scope // the package's own
	faults []string
}

// check reports every rule the unit breaks, one line each.
func check(u unit) []string {
	c := &checker{unit: u}
	known := folderOf(u.dir) != ""
	if !known && (len(u.files) > 0 || strings.HasPrefix(u.dir, "internal/")) {
		c.faults = append(c.faults, u.dir+": in no folder of the table")
	}

	pkg := c.resolve(u.files)
	c.scope = pkg.Scope()
	if len(u.files) > 0 {
		c.packageComment()
	}
	for _, f := range u.files {
		if known {
			c.imports(f)
		}
		c.declarations(f)
		c.uses(f)
		c.assignments(f)
	}
	// A test is bound by one rule only. Each file is resolved by itself, so
	// that x and x_test can share a folder.
	for _, f := range u.tests {
		c.resolve([]*ast.File{f})
		c.sleeps(f)
	}
	slices.Sort(c.faults)
	return slices.Compact(c.faults)
}

func (c *checker) fault(at token.Pos, format string, args ...any) {
	p := c.fset.Position(at)
	c.faults = append(c.faults, fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...)))
}

// resolve finds what each identifier of the files stands for. Imported packages
// are taken as empty: names of this package and of its imports resolve, nothing
// else has to, and the errors that follow are of no interest.
func (c *checker) resolve(files []*ast.File) *types.Package {
	c.info = &types.Info{
		Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{},
	}
	conf := types.Config{
		Importer:                 hollow{},
		FakeImportC:              true,
		DisableUnusedImportCheck: true,
		Error:                    func(error) {},
	}
	pkg, _ := conf.Check(c.module+"/"+c.dir, c.fset, files, c.info)
	return pkg
}

// hollow imports every path as a package with nothing in it.
type hollow struct{}

var versionSuffix = regexp.MustCompile(`^v[0-9]+$`)

func (hollow) Import(importPath string) (*types.Package, error) {
	name := path.Base(importPath)
	if versionSuffix.MatchString(name) {
		name = path.Base(path.Dir(importPath))
	}
	name, _, _ = strings.Cut(name, ".")
	pkg := types.NewPackage(importPath, strings.TrimPrefix(name, "go-"))
	pkg.MarkComplete()
	return pkg, nil
}

// packageComment wants one, and in the usual words.
func (c *checker) packageComment() {
	found := false
	for _, f := range c.files {
		if f.Name.Name != c.files[0].Name.Name {
			c.fault(f.Name.Pos(), "package %s shares its folder with package %s", f.Name.Name, c.files[0].Name.Name)
		}
		if f.Doc == nil {
			continue
		}
		found = true
		want := "Package " + f.Name.Name + " "
		if f.Name.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(f.Doc.Text(), want) {
			c.fault(f.Doc.Pos(), "the package comment does not begin %q", want)
		}
	}
	if !found {
		c.fault(c.files[0].Package, "package %s has no package comment", c.files[0].Name.Name)
	}
}

// imports holds the file against the table of folders and the fences.
func (c *checker) imports(f *ast.File) {
	for _, spec := range f.Imports {
		p := strings.Trim(spec.Path.Value, "`\"")
		if spec.Name != nil && spec.Name.Name == "." {
			c.fault(spec.Pos(), "dot import of %s hides where names come from", p)
		}
		if p == c.module || strings.HasPrefix(p, c.module+"/") {
			dir := strings.TrimPrefix(strings.TrimPrefix(p, c.module), "/")
			if !mayImport(c.dir, dir) {
				c.fault(spec.Pos(), "%s may not import %s", c.dir, dir)
			}
			continue
		}
		for _, fence := range fences {
			if unfenced[p] || slices.Contains(fence.folders, c.dir) {
				continue
			}
			for _, fenced := range fence.paths {
				if p == fenced || strings.HasPrefix(p, fenced+"/") {
					c.fault(spec.Pos(), "%s may not import %s: %s", c.dir, p, fence.why)
				}
			}
		}
	}
}

// mayImport reports whether a package may import another one of this module.
func mayImport(dir, imported string) bool {
	from, to := folderOf(dir), folderOf(imported)
	if slices.Contains(followers, dir) && !slices.Contains(followers, imported) && !slices.Contains(followed, to) {
		return false
	}
	return to != "" && (from == to || folders[from].floor > folders[to].floor && !slices.Contains(folders[from].never, to))
}

// declarations finds init functions and package-level variables that could not
// have been constants.
func (c *checker) declarations(f *ast.File) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil && decl.Name.Name == "init" {
				c.fault(decl.Pos(), "init functions are not allowed")
			}
		case *ast.GenDecl:
			if decl.Tok != token.VAR {
				continue
			}
			for _, spec := range decl.Specs {
				c.variable(decl, spec.(*ast.ValueSpec))
			}
		}
	}
}

// variable judges one specification of package-level variables.
func (c *checker) variable(decl *ast.GenDecl, spec *ast.ValueSpec) {
	if !slices.ContainsFunc(spec.Names, func(n *ast.Ident) bool { return n.Name != "_" }) {
		return // interface assertions
	}
	name := spec.Names[0].Name
	if len(spec.Values) == 0 {
		switch {
		case embeds(spec.Doc) || !decl.Lparen.IsValid() && embeds(decl.Doc):
		case slices.Contains(processes, c.dir) && isIdent(spec.Type, "string"): // set by the linker
		case isArray(spec.Type): // a zero value to compare with
		default:
			c.fault(spec.Pos(), "package-level var %s has no value: only an assignment could give it one", name)
		}
		return
	}
	if held := c.holdsState(spec.Type); held != "" {
		c.fault(spec.Pos(), "package-level var %s holds a %s", name, held)
		return
	}
	for i, value := range spec.Values {
		name := spec.Names[min(i, len(spec.Names)-1)].Name
		if held := c.holdsState(value); held != "" {
			c.fault(value.Pos(), "package-level var %s holds a %s", name, held)
		} else if !c.constant(value) {
			c.fault(value.Pos(), "package-level var %s is initialised by a call that is not known to give an immutable value", name)
		}
	}
}

func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(line *ast.Comment) bool {
		return strings.HasPrefix(line.Text, "//go:embed ")
	})
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func isArray(e ast.Expr) bool {
	a, ok := e.(*ast.ArrayType)
	return ok && a.Len != nil
}

// holdsState names the lock, atomic or channel an expression is made of. The
// bodies of function literals are not part of the value.
func (c *checker) holdsState(e ast.Expr) (held string) {
	if e == nil {
		return ""
	}
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ChanType:
			held = "channel"
		case *ast.SelectorExpr:
			name := c.qualified(n)
			dot := strings.LastIndexByte(name, '.')
			if dot > 0 && stateful[name[:dot]] && !constantCalls[name] {
				held = name
			}
		}
		return held == ""
	})
	return held
}

// constant reports whether an initialiser gives a value nobody changes.
func (c *checker) constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.CompositeLit, *ast.FuncLit, *ast.Ident, *ast.SelectorExpr:
		return true
	case *ast.ParenExpr:
		return c.constant(e.X)
	case *ast.UnaryExpr:
		return e.Op != token.ARROW && c.constant(e.X)
	case *ast.BinaryExpr:
		return c.constant(e.X) && c.constant(e.Y)
	case *ast.CallExpr:
		fun := ast.Unparen(e.Fun)
		if index, ok := fun.(*ast.IndexExpr); ok {
			fun = index.X // an instantiated generic function
		}
		switch fun := fun.(type) {
		case *ast.FuncLit: // a table that is worked out once
			return len(e.Args) == 0 && fun.Type.Results.NumFields() == 1 && isArray(fun.Type.Results.List[0].Type)
		case *ast.ArrayType, *ast.StarExpr: // conversions
			return len(e.Args) == 1 && c.constant(e.Args[0])
		case *ast.SelectorExpr:
			return constantCalls[c.qualified(fun)]
		case *ast.Ident:
			switch obj := c.info.Uses[fun].(type) {
			case *types.TypeName: // a conversion
				return len(e.Args) == 1 && c.constant(e.Args[0])
			case *types.Builtin:
				return slices.Contains([]string{"len", "cap", "min", "max"}, obj.Name())
			}
		}
	}
	return false
}

// uses finds what only some folders, or none, may call. A function named without
// being called counts too: it was taken to be called.
func (c *checker) uses(f *ast.File) {
	c.sleeps(f)
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := c.qualified(sel)
		if clockReads[name] && !slices.Contains(clocks, c.dir) {
			c.fault(sel.Pos(), "%s may not use %s: clock and ids are handed in", c.dir, name)
		}
		if name == "os.ReadFile" && slices.Contains(namedFiles, c.dir) {
			c.fault(sel.Pos(), "%s may not use %s: a file that a person names may have no end", c.dir, name)
		}
		if processEnds[name] && !slices.Contains(processes, c.dir) {
			c.fault(sel.Pos(), "%s may not use %s: return an error to the command", c.dir, name)
		}
		return true
	})
}

func (c *checker) sleeps(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && c.qualified(sel) == "time.Sleep" {
			c.fault(sel.Pos(), "time.Sleep: wait for the event itself")
		}
		return true
	})
}

// assignments finds every change to a package-level variable.
func (c *checker) assignments(f *ast.File) {
	changed := func(e ast.Expr, how string) {
		if name, own := c.global(e); own {
			c.fault(e.Pos(), "package-level var %s is %s", name, how)
		} else if name != "" && !slices.Contains(processes, c.dir) {
			c.fault(e.Pos(), "another package's var %s is %s", name, how)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					changed(e, "assigned")
				}
			}
		case *ast.IncDecStmt:
			changed(n.X, "assigned")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				changed(n.Key, "assigned")
				changed(n.Value, "assigned")
			}
		case *ast.UnaryExpr:
			if _, literal := n.X.(*ast.CompositeLit); n.Op == token.AND && !literal {
				changed(n.X, "pointed to")
			}
		case *ast.CallExpr:
			if len(n.Args) == 0 {
				return true
			}
			switch fun := ast.Unparen(n.Fun).(type) {
			case *ast.Ident:
				_, builtin := c.info.Uses[fun].(*types.Builtin)
				if builtin && slices.Contains([]string{"delete", "clear", "copy", "close"}, fun.Name) {
					changed(n.Args[0], "changed by "+fun.Name)
				}
			case *ast.SelectorExpr:
				if name := c.qualified(fun); changers[name] {
					changed(n.Args[0], "changed by "+name)
				}
			}
		}
		return true
	})
}

// global names the package-level variable an expression reaches into, and
// whether it is one of this package.
func (c *checker) global(e ast.Expr) (name string, own bool) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			if name := c.qualified(x); name != "" {
				return name, false
			}
			e = x.X
		case *ast.Ident:
			v, ok := c.info.Uses[x].(*types.Var)
			if ok && v.Parent() == c.scope {
				return v.Name(), true
			}
			return "", false
		default:
			return "", false
		}
	}
}

// qualified gives import path and name of a selector on an imported package,
// and "" for any other.
func (c *checker) qualified(sel *ast.SelectorExpr) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	pkg, ok := c.info.Uses[id].(*types.PkgName)
	if !ok {
		return ""
	}
	return pkg.Imported().Path() + "." + sel.Sel.Name
}
