// Package since determines which files changed since the commit on which .ci/full last passed. Checks that take long,
// such as the mutants, run only for these files.
package since

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Record is the file, below the top of the repository, that holds the commit on which .ci/full last passed.
const Record = ".ci/passed"

// Env decides which of the long checks run: "all", "changed", or none if it is not set.
const Env = "BAILEY_LONG_CHECKS"

// Changes lists the files that differ from the recorded commit. The zero value means that everything changed.
type Changes struct {
	Commit   string   // the recorded commit; empty if this repository has none
	Files    []string // slash-separated, below the top of the repository
	Comments []string // Go files that differ in comments only; they are not among Files
	root     string
}

// Read compares the working tree, including uncommitted changes, with the recorded commit. If no commit is recorded, or
// the repository does not have it, everything counts as changed.
func Read(root string) (Changes, error) {
	text, err := os.ReadFile(filepath.Join(root, Record))
	commit, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if err != nil || commit == "" {
		return Changes{}, nil
	}
	if _, err := runGit(root, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return Changes{}, nil
	}
	c := Changes{Commit: commit, root: root}
	for _, args := range [][]string{
		{"diff", "--name-only", "--no-renames", "-z", commit},
		{"ls-files", "--others", "--exclude-standard", "-z"},
	} {
		out, err := runGit(root, args...)
		if err != nil {
			return Changes{}, err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			switch {
			case name == "" || name == Record:
			case c.onlyComments(name):
				c.Comments = append(c.Comments, name)
			default:
				c.Files = append(c.Files, name)
			}
		}
	}
	return c, nil
}

// onlyComments reports whether a Go file has the same code as in the recorded commit.
func (c Changes) onlyComments(name string) bool {
	if path.Ext(name) != ".go" {
		return false
	}
	now, err := os.ReadFile(filepath.Join(c.root, filepath.FromSlash(name)))
	if err != nil {
		return false
	}
	old, err := runGit(c.root, "show", c.Commit+":"+name)
	if err != nil {
		return false
	}
	a, known := codeTokens(old)
	b, understood := codeTokens(now)
	return known && understood && slices.Equal(a, b)
}

// codeTokens returns the tokens of a Go file. Comments that the compiler, go vet or go test read count as code. ok is false
// if the file cannot be read as Go. ok is also false for a cgo file, because any of its comments may be code.
func codeTokens(text []byte) (tokens []string, ok bool) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		_, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return tokens, s.ErrorCount == 0
		case tok == token.STRING && literal == `"C"`:
			return nil, false
		case tok == token.COMMENT && !meaningfulComment.MatchString(literal):
		case tok == token.SEMICOLON:
			tokens = append(tokens, ";") // its literal tells an explicit semicolon from a line end
		default:
			tokens = append(tokens, tok.String()+literal)
		}
	}
}

// meaningfulComment matches comments that programs read: directives (go doc go/ast.ParseDirective), build constraints, and the
// output of an example.
var meaningfulComment = regexp.MustCompile(`(?is)^//(go:|line |export |[a-z]+:[a-z])|^// \+build|^//\s*(unordered )?output:|^/\*line `)

// Require skips a test unless the long checks are requested, and returns the changes: everything, if all checks are
// requested.
func Require(t testing.TB) Changes {
	t.Helper()
	c, asked := requestedChanges(t)
	if !asked {
		t.Skipf("takes long: runs with %s=changed for what changed since .ci/full passed, with %s=all for everything", Env, Env)
	}
	return c
}

// Due reports whether the long checks are requested and a file below one of these directories changed.
func Due(t testing.TB, dirs ...string) bool {
	t.Helper()
	c, asked := requestedChanges(t)
	return asked && slices.ContainsFunc(dirs, c.Below)
}

// RequireDue skips a test that is not due.
func RequireDue(t testing.TB, dirs ...string) {
	t.Helper()
	if !Due(t, dirs...) {
		t.Skipf("takes long: runs with %s=changed if %s changed since .ci/full passed, and with %s=all", Env, strings.Join(dirs, " or "), Env)
	}
}

func requestedChanges(t testing.TB) (c Changes, asked bool) {
	t.Helper()
	switch which := os.Getenv(Env); which {
	case "":
		return Changes{}, false
	case "all":
		return Changes{}, true
	case "changed":
		c, err := Read(repositoryTop(t))
		if err != nil {
			t.Fatal(err)
		}
		return c, true
	default:
		t.Fatalf("%s is %q; want all or changed", Env, which)
		return Changes{}, false
	}
}

// repositoryTop returns the directory of the repository. Tests run in the directory of their package.
func repositoryTop(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("the top of the repository is not above this test: %v", err)
	return ""
}

// LeftOut logs how many rows of a table did not run, in the form that .ci/run repeats at its end.
func LeftOut(t testing.TB, left, of int) {
	t.Helper()
	if left > 0 {
		t.Logf("needs %s=all: %d of %d, whose files did not change since .ci/full passed", Env, left, of)
	}
}

// Everything reports whether everything counts as changed, because no recorded commit can be compared with.
func (c Changes) Everything() bool { return c.Commit == "" }

// File reports whether a file changed.
func (c Changes) File(name string) bool { return c.Everything() || slices.Contains(c.Files, name) }

// Below reports whether a file below a directory changed.
func (c Changes) Below(dir string) bool {
	return c.Everything() || slices.ContainsFunc(c.Files, func(f string) bool { return strings.HasPrefix(f, dir+"/") })
}

// Tests reports whether a test file of a package, or a file below its testdata, changed.
func (c Changes) Tests(dir string) bool {
	return c.Everything() || slices.ContainsFunc(c.Files, func(f string) bool {
		return strings.HasPrefix(f, dir+"/testdata/") || path.Dir(f) == dir && strings.HasSuffix(f, "_test.go")
	})
}

// New reports whether the recorded commit's version of a file lacks a text. It is used for the rows of a table.
func (c Changes) New(file, text string) bool {
	if c.Everything() {
		return true
	}
	if !c.File(file) {
		return false
	}
	old, err := runGit(c.root, "show", c.Commit+":"+file)
	return err != nil || !bytes.Contains(old, []byte(text))
}

func runGit(root string, args ...string) ([]byte, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}
