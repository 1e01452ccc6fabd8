// Package policyfiles reads a directory of policy files, loads it as rules about the capabilities of a catalog, and
// rebuilds from a receipt the request that the rules decided. It needs no gateway.
package policyfiles

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
)

// Files is a policy, all files of one directory:
//
//	*.cedar        rules
//	*.test.yaml    calls, and the decisions that the rules must make
//	budgets.yaml   limits on the consumption of agents
//
// README*, *.md, *.sig and names that begin with a dot are ignored. Any other file is an error: otherwise a misspelled
// name would have no effect.
type Files struct {
	Rules   []policy.Source `json:"rules"`
	Tests   []policy.Source `json:"tests,omitempty"`
	Budgets []policy.Source `json:"budgets,omitempty"` // at most one
}

const (
	rulesEnding, testsEnding, budgetsName = ".cedar", ".test.yaml", "budgets.yaml"

	maxPolicyFiles = 1000
	maxPolicyBytes = 4 << 20 // the difference must fit into one answer of the gateway, and a person reads it
)

// All returns the files sorted by name.
func (f Files) All() []policy.Source {
	list := slices.Concat(f.Rules, f.Tests, f.Budgets)
	slices.SortFunc(list, func(a, b policy.Source) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Starting returns a policy to begin with, see [policy.Startings]. On a platform without a cage (bare) it includes the rules
// for that case.
func Starting(name string, bare bool) (f Files, err error) {
	var names []string
	for _, s := range policy.Startings() {
		if s.Name == name {
			f.Rules, f.Tests = s.Sources()
			if bare {
				f.Rules = append(f.Rules, policy.Elsewhere())
			}
			return f, nil
		}
		names = append(names, s.Name)
	}
	return f, bailey.Invalid.Errorf("use one of "+strings.Join(names, ", "), "there is no starting policy %q", name)
}

// DescribeStartings returns one line for each policy to begin with.
func DescribeStartings() (lines []string) {
	for _, s := range policy.Startings() {
		lines = append(lines, fmt.Sprintf("%-5s %s", s.Name, s.Text))
	}
	return lines
}

// DescribeStarting returns the name of a policy to begin with, and what it allows.
func DescribeStarting(name string) string {
	for _, s := range policy.Startings() {
		if s.Name == name {
			return s.Name + ", " + s.Text
		}
	}
	return name
}

// Digest returns the SHA-256, in hex, of all files sorted by name. Each name and each text is preceded by its length (8
// bytes, big endian).
func (f Files) Digest() string {
	h := sha256.New()
	put := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, s := range f.All() {
		put([]byte(s.Name))
		put(s.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Add adds a file to the list of its type.
func (f *Files) Add(s policy.Source) error {
	switch {
	// such a name could forge lines in the output of apply, and could not be stored unchanged
	case strings.ContainsFunc(s.Name, terminal.Strange):
		return bailey.Invalid.Errorf("rename it, or move it away",
			"%+q in the policy's directory is not a plain name", s.Name)
	case s.Name == budgetsName:
		f.Budgets = append(f.Budgets, s)
	case strings.HasSuffix(s.Name, rulesEnding):
		f.Rules = append(f.Rules, s)
	case strings.HasSuffix(s.Name, testsEnding):
		f.Tests = append(f.Tests, s)
	default:
		return bailey.Invalid.Errorf("rename it, or move it away; *.md and names that begin with a dot are ignored",
			"%q in the policy's directory is not one of *%s, *%s and %s", s.Name, rulesEnding, testsEnding, budgetsName)
	}
	if !utf8.Valid(s.Text) {
		return bailey.Invalid.New(s.Name+" is not UTF-8", "write it as UTF-8")
	}
	return nil
}

func isIgnoredFile(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "README") || strings.HasSuffix(name, ".md") ||
		strings.HasSuffix(name, ".sig")
}

// ReadDir reads the directory of a policy. It does not follow symlinks in the directory and does not block on
// pipes.
func ReadDir(dir string) (f Files, err error) {
	// with the dot, opening a pipe called dir fails at once instead of blocking
	root, err := os.OpenRoot(dir + string(filepath.Separator) + ".")
	if errors.Is(err, fs.ErrNotExist) {
		return f, bailey.NotFound.New("there is no policy in "+dir, "run bailey policy init to write one")
	}
	if err != nil {
		return f, unreadablePolicy(dir, err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return f, unreadablePolicy(dir, err)
	}
	left, count := int64(maxPolicyBytes), 0
	for _, e := range entries {
		if isIgnoredFile(e.Name()) {
			continue
		}
		if count++; count > maxPolicyFiles {
			return f, unreadablePolicy(dir, fmt.Errorf("it has more than %d files", maxPolicyFiles))
		}
		text, err := readPolicyFile(root, e, left)
		if err != nil {
			return f, unreadablePolicy(filepath.Join(dir, terminal.CutLine(e.Name())), err)
		}
		left -= int64(len(text))
		if err := f.Add(policy.Source{Name: e.Name(), Text: text}); err != nil {
			return f, err
		}
	}
	if len(f.Rules) == 0 {
		return f, bailey.NotFound.New("no *.cedar in "+dir+": without rules nothing is allowed",
			"run bailey policy init to write a policy")
	}
	return f, nil
}

func readPolicyFile(root *os.Root, e fs.DirEntry, left int64) ([]byte, error) {
	if !e.Type().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	r, err := root.OpenFile(e.Name(), os.O_RDONLY|safefile.NoWait|safefile.NoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if info, err := r.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is not a regular file")) // replaced since the directory was read
	}
	text, err := io.ReadAll(io.LimitReader(r, left+1))
	if err == nil && int64(len(text)) > left {
		err = fmt.Errorf("a policy may have at most %d bytes", maxPolicyBytes)
	}
	return text, err
}

func unreadablePolicy(what string, err error) error {
	return bailey.Invalid.Wrap(err, what+" cannot be read as a policy",
		"use a directory of plain files, as `bailey policy init` writes it")
}

// Edition is a policy that was loaded completely.
type Edition struct {
	Files   Files
	catalog *pack.Catalog // the catalog whose actions engine knows
	Engine  *policy.Engine
	Budgets []bailey.Budget
	Tests   int
	Fault   error // why nothing is allowed
}

// Load loads the rules and budgets of a policy for the capabilities of a catalog, and runs its tests. If a file is wrong
// or a test fails, it returns an error and the edition must not be used.
func Load(f Files, catalog *pack.Catalog) (e Edition, err error) {
	e.Files, e.catalog = f, catalog
	if e.Engine, err = policy.Load(policy.Config{Sources: f.Rules, Actions: Actions(catalog)}); err != nil {
		return e, err
	}
	for _, s := range f.Budgets {
		if e.Budgets, err = e.Engine.Budgets(s); err != nil {
			return e, err
		}
	}
	var tests []policy.Test
	for _, s := range f.Tests {
		list, err := policy.ParseTests(s)
		if err != nil {
			return e, err
		}
		tests = append(tests, list...)
	}
	e.Tests = len(tests)
	return e, failuresError(review.RunTests(e.Engine, tests, inputChecker(catalog)))
}

// inputChecker checks the input of a test like that of a call.
func inputChecker(catalog *pack.Catalog) review.Fit {
	return func(id bailey.CapabilityID, input map[string]any) (map[string]any, bool, []string, error) {
		m, err := catalog.Lookup(id)
		if err != nil {
			return nil, false, nil, err
		}
		typed, err := m.Check(input, false)
		if err != nil {
			return nil, false, nil, err
		}
		egress, err := m.Egress(typed)
		return typed, m.Writes(), egress, err
	}
}

// failuresError returns an error that lists the failed tests, or nil.
func failuresError(tests []review.Failure) error {
	if len(tests) == 0 {
		return nil
	}
	const shown = 50
	var lines []string
	for i, f := range tests {
		if i == shown {
			lines = append(lines, fmt.Sprintf("and %d more", len(tests)-shown))
			break
		}
		lines = append(lines, strings.ReplaceAll(f.String(), "\n  ", "; "))
	}
	return bailey.Invalid.New("the policy fails its tests:\n  "+strings.Join(lines, "\n  "),
		"correct the rule or the test; bailey policy check runs them again")
}

// Other reports whether the call uses another manifest than the one whose class the rules examine, because packs were
// replaced after the lookup of the capability.
func (e *Edition) Other(q bailey.Request) bool {
	if e.catalog == nil || q.Manifest == "" {
		return false
	}
	m, err := e.catalog.Lookup(q.Capability)
	return err == nil && m.Digest != q.Manifest
}

// SignatureNamespace prevents the use of a policy's signature for any other purpose.
const SignatureNamespace = "policy@bailey"

// SignedText returns the text that is signed for a policy: the digest of its files.
func SignedText(digest string) []byte { return []byte("bailey policy " + digest + "\n") }

// BundleNamespace is the namespace of the signatures of bundles, which a control plane distributes.
const BundleNamespace = "bundle@bailey"

// BundleText returns the text that is signed for a bundle: its serial number and the digest of its files.
func BundleText(serial uint64, digest string) []byte {
	return fmt.Appendf(nil, "bailey bundle %d\n%s", serial, SignedText(digest))
}

// Actions describes every capability to the policy.
func Actions(c *pack.Catalog) []policy.Action {
	var list []policy.Action
	for _, m := range c.All() {
		list = append(list, policy.Action{
			ID: m.ID, Pack: m.Pack, SideEffect: string(m.SideEffect), Risk: string(m.Risk),
			Reversibility: string(m.Reversibility), InputSchema: m.InputSchema(), BuiltIn: m.Builtin,
			Waivers: m.Waivers(), Home: m.Home(), Host: m.Isolation == pack.Host, Sandbox: m.Isolation == pack.Sandbox,
			Model: m.Isolation == pack.Model, Own: m.Isolation == pack.Agent,
		})
	}
	return list
}
