package env

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// GoNames are the names that a Go source gives its environments: the literal first argument of each call of New of the package sdk/env, in order, each
// once. The source is only looked at, never run; a name that is computed is not found, nor one in a source that can't be parsed so far.
func GoNames(src string) []string {
	if !strings.Contains(src, "/sdk/env") {
		return nil
	}
	file, _ := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if file == nil {
		return nil
	}
	pkg := ""
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil || !strings.HasSuffix(path, "/sdk/env") {
			continue
		}
		if pkg = "env"; i.Name != nil {
			pkg = i.Name.Name
		}
	}
	if pkg == "" || pkg == "_" {
		return nil
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 || !isNew(call.Fun, pkg) {
			return true
		}
		lit, ok := call.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if name, err := strconv.Unquote(lit.Value); err == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return true
	})
	return names
}

func isNew(fun ast.Expr, pkg string) bool {
	if id, ok := fun.(*ast.Ident); ok {
		return pkg == "." && id.Name == "New"
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "New" {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}
