package settings

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/strictyaml"
)

// InUse holds the complete profiles that an operator selected last. If their files change, nothing changes until an
// operator selects them again. The zero InUse is a home without profiles.
type InUse struct {
	Profiles []UsedProfile     `json:"profiles,omitempty"` // in order; for a single value, a later profile wins
	At       time.Time         `json:"at,omitzero"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// UsedProfile is a profile with its name and the contents of its file.
type UsedProfile struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256 of the file, hex
	Profile
}

// Digests returns the digests of the profiles in order, or nil if none is in use.
func (u InUse) Digests() (list []string) {
	for _, one := range u.Profiles {
		list = append(list, one.Digest)
	}
	return list
}

// Names returns the names of the profiles in order.
func (u InUse) Names() (list []string) {
	for _, one := range u.Profiles {
		list = append(list, one.Name)
	}
	return list
}

// Stack is the combination of the profiles in use. Lists are merged. For single values and bindings, a later profile
// wins. If any profile names packs or capabilities, only those that such a profile admits are active; otherwise all
// are. A Stack is immutable.
type Stack struct {
	InUse
	Failed error // why no capability can be called
}

// Fault returns why no capability can be called, or nil.
func (s Stack) Fault() error { return s.Failed }

// Name returns the value of context.profile: all names in order, joined by "+".
func (s Stack) Name() string { return strings.Join(s.Names(), "+") }

// Environment returns the value of context.environment.
func (s Stack) Environment() (env string) {
	for _, p := range s.Profiles {
		if p.Environment != "" {
			env = p.Environment
		}
	}
	return env
}

// Edition returns a string that differs if any content of the profiles differs.
func (s Stack) Edition() string { return strings.Join(s.Digests(), " ") }

// Admit returns an error if a capability of a pack cannot be called.
func (s Stack) Admit(id bailey.CapabilityID, pack string) error {
	if s.Failed != nil {
		return s.Failed
	}
	silent := true // no profile restricts capabilities
	for _, p := range s.Profiles {
		if p.hasSelection() && p.allowsCapability(id, pack) {
			return nil
		}
		silent = silent && !p.hasSelection()
	}
	if silent {
		return nil
	}
	return bailey.Blocked.Errorf("use an active capability: bailey capabilities list; a person can use another profile: bailey profile use",
		"%s is not active in the profile %s", id, s.Name())
}

// Workspaces returns the workspaces of all profiles in order, each once, or nil if there are none.
func (s Stack) Workspaces() (dirs []string) {
	for _, p := range s.Profiles {
		for _, dir := range p.Workspaces {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// Network returns the settings n with the endpoints of the profiles before those of n, the last profile first. If an
// endpoint is listed several times, the flags of its first entry apply.
func (s Stack) Network(n Network) Network {
	var list []Reach
	for _, p := range slices.Backward(s.Profiles) {
		list = append(list, p.Endpoints...)
	}
	n.Endpoints = append(list, n.Endpoints...)
	return n
}

// Credential returns the broker's name for a credential that a capability needs.
func (s Stack) Credential(id bailey.CapabilityID, name string) string {
	for _, p := range slices.Backward(s.Profiles) {
		for _, b := range p.Secrets {
			if b.Name == name && (len(b.For) == 0 || anyMeans(b.For, id)) {
				return b.From
			}
		}
	}
	return name
}

// Folder returns the value for a path input that a call omits, or "" if no profile has one.
func (s Stack) Folder(id bailey.CapabilityID, input string) string {
	for _, p := range slices.Backward(s.Profiles) {
		for _, b := range p.Folders {
			if b.Input == input && (len(b.For) == 0 || anyMeans(b.For, id)) {
				return b.Path
			}
		}
	}
	return ""
}

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
	r := newReader(name, "bailey profile use")
	r.readKeys(r.Body(text), "part of a profile", strictyaml.Fields{
		"description":  r.wordField(maxText, &p.Description),
		"packs":        r.activeField("packs", "", &p.Packs),
		"capabilities": r.activeField("capabilities", ".*", &p.Capabilities),
		"environment":  func(n ast.Node) { p.Environment = r.readPlainWord(n, "") },
		"workspaces":   storeIn(&p.Workspaces, r.readWorkspaces),
		"endpoints":    storeIn(&p.Endpoints, r.readEndpoints),
		"secrets":      storeIn(&p.Secrets, r.readSecrets),
		"folders":      storeIn(&p.Folders, r.readFolders),
	})
	if err := r.Err(); err != nil {
		return Profile{}, err
	}
	return p, nil
}

// activeField reads packs or capability patterns, such as git.*. An empty list is an error: it would disable all
// capabilities, and is more likely unfinished.
func (r reader) activeField(what, signs string, list *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.readItems(n, what+" must be a list of names") {
			name := r.readPlainWord(item, signs)
			if len(*list) == maxPacks || slices.Contains(*list, name) {
				r.AddFault(item, "%s must name each once, and at most %d", what, maxPacks)
			}
			*list = append(*list, name)
		}
		if len(*list) == 0 {
			r.AddFault(n, "%s must name at least one; leave the key out for no restriction", what)
		}
	}
}

// readPlainWord reads a word of lower case letters, digits, "_", "-" and the characters in signs.
func (r reader) readPlainWord(n ast.Node, signs string) string {
	word := r.readWord(n, maxRole)
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_-"+signs) != "" {
		r.AddFault(n, "use lower case letters, digits, _ and -%s, not %q", strings.Join(strings.Split(signs, ""), " "), word)
	}
	return word
}

func (r reader) readSecrets(n ast.Node) (list []SecretBind) {
	for _, item := range r.readItems(n, "secrets must be a list of bindings") {
		var b SecretBind
		r.readKeys(item, "part of a binding", strictyaml.Fields{
			"for":  r.activeField("for", ".*", &b.For),
			"name": r.wordField(maxRole, &b.Name),
			"from": r.wordField(maxRole, &b.From),
		})
		if b.Name == "" || b.From == "" || len(list) == maxBindings {
			r.AddFault(item,
				"a secret needs name, as in the manifest, and from, the broker's name; at most %d are allowed", maxBindings)
		}
		list = append(list, b)
	}
	return list
}

func (r reader) readFolders(n ast.Node) (list []FolderBind) {
	for _, item := range r.readItems(n, "folders must be a list of bindings") {
		var b FolderBind
		r.readKeys(item, "part of a binding", strictyaml.Fields{
			"for":   r.activeField("for", ".*", &b.For),
			"input": r.wordField(maxRole, &b.Input),
			"path":  r.wordField(maxWord, &b.Path),
		})
		switch {
		case b.Input == "" || len(list) == maxBindings:
			r.AddFault(item, "a folder needs input, a path input's name, and path; at most %d are allowed", maxBindings)
		case !filepath.IsAbs(b.Path) || filepath.Clean(b.Path) != b.Path:
			r.AddFault(item, "the folder %q is not an absolute, clean path", b.Path)
		}
		list = append(list, b)
	}
	return list
}

// allowsCapability reports whether a profile that names packs or capabilities includes this one.
func (p Profile) allowsCapability(id bailey.CapabilityID, pack string) bool {
	return (len(p.Packs) == 0 || slices.Contains(p.Packs, pack)) &&
		(len(p.Capabilities) == 0 || anyMeans(p.Capabilities, id))
}

// hasSelection reports whether the profile names packs or capabilities.
func (p Profile) hasSelection() bool { return len(p.Packs) > 0 || len(p.Capabilities) > 0 }

func anyMeans(patterns []string, id bailey.CapabilityID) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesPattern(pattern, string(id)) })
}
