package settings

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// Profile configures a kind of work: which capabilities are active, and values that manifests leave open. With the zero
// value, all installed capabilities are active.
type Profile struct {
	Description  string       `json:"description,omitempty"`
	Packs        []string     `json:"packs,omitempty"`        // active packs; empty: no restriction
	Capabilities []string     `json:"capabilities,omitempty"` // active capabilities of these packs, as patterns with *
	Environment  string       `json:"environment,omitempty"`  // context.environment, for example production or staging
	Workspaces   []string     `json:"workspaces,omitempty"`   // in addition to those of the settings
	Endpoints    []Reach      `json:"endpoints,omitempty"`    // take precedence over those of the settings
	Secrets      []SecretBind `json:"secrets,omitempty"`
	Folders      []FolderBind `json:"folders,omitempty"`
}

// SecretBind maps a credential name in manifests to the broker's name for it.
type SecretBind struct {
	For  []string `json:"for,omitempty"` // capabilities; empty: all
	Name string   `json:"name"`          // name in manifests
	From string   `json:"from"`          // name at the broker
}

// FolderBind is the value for a path input that a call omits.
type FolderBind struct {
	For   []string `json:"for,omitempty"` // capabilities; empty: all
	Input string   `json:"input"`
	Path  string   `json:"path"` // must be in a workspace, like any other path
}

// Limits of a profile.
const (
	maxPacks    = 64
	maxBindings = 64
	maxText     = 500 // bytes
)

// ParseProfile parses a profile as strictly as ParseSettings. name is the file name for errors.
func ParseProfile(name string, text []byte) (p Profile, err error) {
	defer func() { err = inFile(name, "bailey profile use", err) }()
	defer foreign(&err)
	body, err := document(text)
	if err != nil {
		return Profile{}, err
	}
	err = each(body, "part of a profile", keys{
		"description":  func(n ast.Node) (err error) { p.Description, err = wordOf(n, maxText); return err },
		"packs":        func(n ast.Node) (err error) { p.Packs, err = activeOf(n, "packs", ""); return err },
		"capabilities": func(n ast.Node) (err error) { p.Capabilities, err = activeOf(n, "capabilities", ".*"); return err },
		"environment":  func(n ast.Node) (err error) { p.Environment, err = plainWord(n, ""); return err },
		"workspaces":   func(n ast.Node) (err error) { p.Workspaces, err = workspacesOf(n); return err },
		"endpoints":    func(n ast.Node) (err error) { p.Endpoints, err = endpointsOf(n); return err },
		"secrets":      func(n ast.Node) (err error) { p.Secrets, err = secretsOf(n); return err },
		"folders":      func(n ast.Node) (err error) { p.Folders, err = foldersOf(n); return err },
	})
	if err != nil {
		return Profile{}, err
	}
	return p, nil
}

// activeOf reads packs or capability patterns, such as git.*. An empty list is an error: it would disable all
// capabilities, and is more likely unfinished.
func activeOf(n ast.Node, what, signs string) (list []string, err error) {
	err = items(n, what+" wants a list of names", func(item ast.Node) error {
		name, err := plainWord(item, signs)
		if err == nil && (len(list) == maxPacks || slices.Contains(list, name)) {
			err = fault(item, "%s names each once, and at most %d", what, maxPacks)
		}
		list = append(list, name)
		return err
	})
	if err == nil && len(list) == 0 {
		err = fault(n, "%s names at least one; leave the key out to say nothing", what)
	}
	return list, err
}

// plainWord reads a word of lower case letters, digits, "_", "-" and the characters in signs.
func plainWord(n ast.Node, signs string) (string, error) {
	word, err := wordOf(n, maxRole)
	if err == nil && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_-"+signs) != "" {
		err = fault(n, "want lower case letters, digits, _ and -%s, found %q", strings.Join(strings.Split(signs, ""), " "), word)
	}
	return word, err
}

func secretsOf(n ast.Node) (list []SecretBind, err error) {
	err = items(n, "secrets wants a list of bindings", func(item ast.Node) error {
		var b SecretBind
		err := each(item, "part of a binding", keys{
			"for":  func(n ast.Node) (err error) { b.For, err = activeOf(n, "for", ".*"); return err },
			"name": func(n ast.Node) (err error) { b.Name, err = wordOf(n, maxRole); return err },
			"from": func(n ast.Node) (err error) { b.From, err = wordOf(n, maxRole); return err },
		})
		if err == nil && (b.Name == "" || b.From == "" || len(list) == maxBindings) {
			err = fault(item, "a secret has name, as the manifest wants it, and from, as the broker lends it; there are at most %d", maxBindings)
		}
		list = append(list, b)
		return err
	})
	return list, err
}

func foldersOf(n ast.Node) (list []FolderBind, err error) {
	err = items(n, "folders wants a list of bindings", func(item ast.Node) error {
		var b FolderBind
		err := each(item, "part of a binding", keys{
			"for":   func(n ast.Node) (err error) { b.For, err = activeOf(n, "for", ".*"); return err },
			"input": func(n ast.Node) (err error) { b.Input, err = wordOf(n, maxRole); return err },
			"path":  func(n ast.Node) (err error) { b.Path, err = wordOf(n, maxWord); return err },
		})
		switch {
		case err != nil:
		case b.Input == "" || len(list) == maxBindings:
			err = fault(item, "a folder has input, a path input's name, and path; there are at most %d", maxBindings)
		case !filepath.IsAbs(b.Path) || filepath.Clean(b.Path) != b.Path:
			err = fault(item, "the folder %q is not an absolute, clean path", b.Path)
		}
		list = append(list, b)
		return err
	})
	return list, err
}

// admits reports whether a profile that names packs or capabilities includes this one.
func (p Profile) admits(id bailey.CapabilityID, pack string) bool {
	return (len(p.Packs) == 0 || slices.Contains(p.Packs, pack)) && (len(p.Capabilities) == 0 || anyMeans(p.Capabilities, id))
}

// says reports whether the profile names packs or capabilities.
func (p Profile) says() bool { return len(p.Packs) > 0 || len(p.Capabilities) > 0 }

func anyMeans(patterns []string, id bailey.CapabilityID) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return means(pattern, string(id)) })
}
