package pack

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/gitremote"
	"bailey/internal/strictyaml"
)

// remoteUse names the inputs that the gate fills in from the configuration of a git repository.
type remoteUse struct {
	Repo    string `json:"repo"`           // path input: the directory that contains .git
	Name    string `json:"name,omitempty"` // the remote; "" means every remote
	URL     string `json:"url"`            // gets the address, or all of them
	Options string `json:"options"`        // gets options that make git use exactly this address
	For     string `json:"for"`            // a purpose of package gitremote
}

// ResolvesRemote returns the path input in which a call has a remote to resolve, or "".
func (m *Capability) ResolvesRemote() string {
	if m.spec.Remote == nil {
		return ""
	}
	return m.spec.Remote.Repo
}

// ResolveRemote returns a copy of a checked input in which the remote has its address. read returns a regular file
// below the opened directory, and false if there is none. An input that the caller has filled in already must have the
// same value.
func (m *Capability) ResolveRemote(input map[string]any,
	read func(name string) (data []byte, there bool, err error)) (map[string]any, error) {
	use := m.spec.Remote
	found, err := readRemotes(use, input, read)
	if err != nil {
		return nil, err
	}
	filled := map[string]any{}
	var urls, options []any
	for _, r := range found {
		urls = append(urls, r.URL)
		options = append(options, "-c", "url."+r.URL+".insteadOf="+r.Spelled)
	}
	filled[use.URL], filled[use.Options] = urls, options
	if use.Name != "" {
		filled[use.Name], filled[use.URL] = found[0].Name, found[0].URL
	}
	all := maps.Clone(input)
	for _, name := range sortedKeys(filled) {
		if had, given := input[name]; given && plainText(had, parseNumber) != plainText(filled[name], parseNumber) {
			return nil, m.invalidError("input /%s is not what the configuration of the repository says; leave it out", name)
		}
		all[name] = filled[name]
	}
	return m.Check(all, false)
}

func readRemotes(use *remoteUse, input map[string]any,
	read func(name string) ([]byte, bool, error)) ([]gitremote.Remote, error) {
	config, err := readRepository(read)
	if err != nil {
		return nil, err
	}
	purpose := gitremote.Purposes()[use.For]
	if use.Name == "" {
		return config.All(purpose)
	}
	name, given := input[use.Name].(string)
	if !given {
		head, _, err := read(".git/HEAD")
		if err != nil {
			return nil, err
		}
		if name, err = config.Default(gitremote.Branch(head), purpose); err != nil {
			return nil, err
		}
	}
	r, err := config.Resolve(name, purpose)
	return []gitremote.Remote{r}, err
}

// readRepository returns the configuration of a repository whose .git is a directory of its own. The cage shows nothing
// else of a repository.
func readRepository(read func(name string) ([]byte, bool, error)) (*gitremote.Config, error) {
	data, there, err := read(".git/config")
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, notHereError(read)
	}
	if _, there, err := read(".git/commondir"); err != nil || there {
		return nil, bailey.Denied.Wrap(err, "the repository shares another one's configuration: .git/commondir",
			"call it in the repository that has the configuration")
	}
	return gitremote.Parse(data)
}

func notHereError(read func(name string) ([]byte, bool, error)) error {
	file, there, err := read(".git")
	if err != nil {
		return err
	}
	if dir, ok := gitremote.Elsewhere(file); there && ok {
		return bailey.Invalid.Errorf("call it in the main worktree; a cage shows only the directory of the call",
			"this is a linked worktree or a submodule, and its repository is %q", safeText(dir))
	}
	return bailey.Invalid.New("there is no .git/config in this directory", "name the top directory of the repository")
}

// readRemoteUse reads the key remote. It runs after the schema, because it names inputs.
func (r *reader) readRemoteUse(n ast.Node, m *manifest, s *schema) {
	if n == nil {
		return
	}
	use := &remoteUse{}
	seen := r.Fields(n, "remote", strictyaml.Fields{
		"repo":    r.wordField("repo", inputName(), &use.Repo),
		"name":    r.wordField("name", inputName(), &use.Name),
		"url":     r.wordField("url", inputName(), &use.URL),
		"options": r.wordField("options", inputName(), &use.Options),
		"for":     choiceField(r, "for", purposeWords(), &use.For),
	})
	r.requireKeys(n, "remote", seen, "repo", "url", "options", "for")
	in := func(name string) *rule { return s.props[name] }
	list := func(name string) bool {
		return in(name) != nil && in(name).hasOnlyTypes("array") && in(name).Items.followRef() != nil
	}
	text := func(name string) bool { return in(name) != nil && in(name).hasOnlyTypes("string") }
	switch {
	case !r.builtin:
		r.AddFault(n, "remote is for built-in packs: a configuration of a repository decides where the call reaches")
	case !pathInput(s, m, use.Repo):
		r.AddFault(n, "remote needs repo to be a path input, not %q", strictyaml.Clip(use.Repo))
	case use.Name != "" && (!text(use.Name) || !text(use.URL) || in(use.URL).Format != "url"):
		r.AddFault(n, "remote needs name to be a string, and url a string of format url")
	case use.Name == "" && (!list(use.URL) || in(use.URL).Items.followRef().Format != "url"):
		r.AddFault(n, "remote without a name needs url to be a list of strings of format url")
	case !list(use.Options) || !slices.Contains(in(use.Options).Items.followRef().Bailey.Allow, "option") ||
		!slices.Contains(in(use.Options).Items.followRef().Bailey.Allow, "url"):
		r.AddFault(n, "remote needs options to be a list whose items allow options and addresses")
	case !slices.Contains(m.Sandbox.Egress, "{{ input."+use.URL+" }}"):
		r.AddFault(n, "remote fills in input.%s, which is not in network.egress", strictyaml.Clip(use.URL))
	}
	m.Remote = use
}

func purposeWords() map[string]string {
	words := map[string]string{}
	for word := range gitremote.Purposes() {
		words[word] = word
	}
	return words
}

// WantsFor returns the credentials that a call with this checked input needs. A credential for what lies below an
// address is needed only if the address is at one of its places, and goes only there. Each has the limits of this call.
func (m *Capability) WantsFor(input map[string]any) (wants []bailey.Want) {
	all := m.Wants()
	for i, c := range m.spec.Credentials {
		w := all[i]
		w.Limits = m.limitsFor(c.Name, input)
		if c.Inject != nil && c.Inject.Below != "" {
			if m.noBroker && !m.isPush() {
				continue
			}
			if w.Inject.Paths = pathsAt(input[c.Inject.Below], w.Inject.To); len(w.Inject.Paths) == 0 {
				continue
			}
			w.Inject.To = slices.DeleteFunc(w.Inject.To, func(to string) bool {
				return !slices.ContainsFunc(w.Inject.Paths, func(p string) bool { return strings.HasPrefix(p, to+"/") })
			})
		}
		wants = append(wants, w)
	}
	return wants
}

// WithoutBroker returns a copy of m for a home without a broker. A call that fetches from an address then needs no
// credential for it, because the repository there may be public.
func (m *Capability) WithoutBroker() *Capability {
	alone := *m
	alone.noBroker = true
	return &alone
}

func (m *Capability) isPush() bool {
	return m.spec.Remote != nil && m.spec.Remote.For == string(gitremote.Push)
}

// RequiredWants returns the credentials that every call needs.
func (m *Capability) RequiredWants() []bailey.Want { return m.WantsFor(nil) }

// pathsAt returns host:port/path of the addresses that are at one of the places. A path of one name is left out: it is an
// owner, and the credential would be lent for all repositories below it.
func pathsAt(v any, places []string) (paths []string) {
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	for _, item := range list {
		text, _ := item.(string)
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || !strings.Contains(strings.Trim(u.Path, "/"), "/") {
			continue
		}
		at, err := egressEntry{}.endpointOf(text)
		if place := at.String(); err == nil && slices.Contains(places, place) {
			paths = append(paths, place+strings.TrimSuffix(u.Path, "/"))
		}
	}
	return paths
}

// SetUnlent gives the variable of each credential that a call does not need an empty value.
func (m *Capability) SetUnlent(j *bailey.Job, input map[string]any) {
	wants := m.WantsFor(input)
	for _, c := range m.spec.Credentials {
		if c.Inject == nil || c.Inject.Below == "" ||
			slices.ContainsFunc(wants, func(w bailey.Want) bool { return w.Env == c.Env }) {
			continue
		}
		j.EnvNames = slices.DeleteFunc(slices.Clone(j.EnvNames), func(name string) bool { return name == c.Env })
		j.Env = append(j.Env, fmt.Sprintf("%s=", c.Env))
	}
}
