package main

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// affectedPackages returns the packages whose test results may have changed since .ci/full last passed. A package counts if a
// file changed in its directory, in a package that it or its tests import, or in a document that its tests read. Tests
// that start programs of Bailey depend on all packages of these programs. If the way in which tests run has changed,
// affected returns all packages.
func (p tree) affectedPackages(ctx context.Context) ([]string, error) {
	files := p.changes.Files
	if p.changes.Everything() || slices.ContainsFunc(files, func(f string) bool {
		return f == "go.mod" || f == "go.sum" || strings.HasPrefix(f, ".ci/") || strings.HasPrefix(f, "test/checks/")
	}) {
		return p.all, nil
	}
	deps, err := p.importedPackages(ctx)
	if err != nil {
		return nil, err
	}
	own, source, documents := map[string]bool{}, map[string]bool{}, []string{}
	for _, f := range files {
		pkg := p.owningPackage(f)
		own[pkg] = true
		switch {
		case pkg == p.all[0] && path.Ext(f) != ".go":
			documents = append(documents, f)
		case !strings.HasSuffix(f, "_test.go"):
			source[pkg] = true
		}
	}
	var programs []string
	for _, pkg := range p.all {
		if strings.HasPrefix(p.packageDir(pkg), "cmd/") {
			programs = append(programs, slices.Collect(maps.Keys(deps[pkg]))...)
		}
	}
	var some []string
	for _, pkg := range p.all {
		top, _, _ := strings.Cut(p.packageDir(pkg), "/")
		starts := slices.Contains([]string{"cmd", "test", "examples"}, top) && slices.ContainsFunc(programs, func(dep string) bool { return source[dep] })
		if own[pkg] || starts || slices.ContainsFunc(slices.Collect(maps.Keys(deps[pkg])), func(dep string) bool { return source[dep] }) || p.testsMention(pkg, documents) {
			some = append(some, pkg)
		}
	}
	return some, nil
}

// importedPackages returns, for each package, all packages that it and its tests import, directly or indirectly, including
// itself.
func (p tree) importedPackages(ctx context.Context) (map[string]map[string]bool, error) {
	out, err := p.commandOutput(ctx, "go", "list", "-test", "-f", "{{.ImportPath}}{{range .Deps}}\t{{.}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	deps := map[string]map[string]bool{}
	for line := range strings.Lines(out) {
		names := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i, name := range names {
			name, _, _ = strings.Cut(name, " ") // "x [x.test]" is package x compiled for its tests
			names[i] = strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
		}
		if deps[names[0]] == nil {
			deps[names[0]] = map[string]bool{}
		}
		for _, name := range names {
			deps[names[0]][name] = true
		}
	}
	return deps, nil
}

// owningPackage returns the package in whose directory a file is, or the next one above.
func (p tree) owningPackage(file string) string {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if found := p.packagesIn([]string{dir}); len(found) > 0 {
			return found[0]
		}
	}
	return p.all[0]
}

// testsMention reports whether the tests of a package name one of these files, or its whole directory.
func (p tree) testsMention(pkg string, files []string) bool {
	dir := filepath.Join(p.checks.dir, p.packageDir(pkg))
	for _, pattern := range []string{"*_test.go", "testdata/script/*"} {
		tests, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, t := range tests {
			text, err := os.ReadFile(t)
			if err != nil {
				return true
			}
			for _, f := range files {
				names := []string{path.Base(f)}
				if dir := path.Dir(f); dir != "." {
					names = append(names, path.Base(dir)+`"`, path.Base(dir)+`/"`, path.Base(dir)+`/*`)
				}
				if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(string(text), name) }) {
					return true
				}
			}
		}
	}
	return false
}
