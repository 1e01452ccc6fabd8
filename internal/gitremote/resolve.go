package gitremote

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bailey"
)

// Purpose is what a call does with a remote.
type Purpose string

// Purposes of a call.
const (
	Fetch Purpose = "fetch"
	Pull  Purpose = "pull" // fetches, and merges or rebases
	Push  Purpose = "push"
)

// Purposes returns all purposes by their words.
func Purposes() map[string]Purpose {
	return map[string]Purpose{string(Fetch): Fetch, string(Pull): Pull, string(Push): Push}
}

// Remote is a remote whose address is known.
type Remote struct {
	Name string
	URL  string // https://host/path, or with a port
	// Spelled is the address in the configuration, for example git@github.com:owner/name.git.
	Spelled string
}

// sameOverHTTPS lists services that have the same repositories under the same paths over ssh and over https.
var sameOverHTTPS = []string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"}

var (
	remoteName = lazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)
	httpsURL   = lazyRegexp(`^https://([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+(?::[0-9]{1,5})?)/([A-Za-z0-9_./~+-]+)$`)
	sshURL     = lazyRegexp(`^(?:ssh://git@([A-Za-z0-9.-]+)/|git@([A-Za-z0-9.-]+):/?)` +
		`([A-Za-z0-9_.~+-][A-Za-z0-9_./~+-]*)$`)
	fetchSpec = lazyRegexp(`^\+?(refs/[A-Za-z0-9_./*+-]+):(refs/[A-Za-z0-9_./*+-]+)$`)
	notSpec   = lazyRegexp(`^\^refs/[A-Za-z0-9_./*+-]+$`)
)

func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Branch returns the branch that the file HEAD names, or "" if it names none.
func Branch(head []byte) string {
	name, ok := strings.CutPrefix(strings.TrimSuffix(string(head), "\n"), "ref: refs/heads/")
	if !ok || strings.ContainsAny(name, "\n\x00") {
		return ""
	}
	return name
}

// Elsewhere returns the directory that a file .git names instead of being the repository itself, as in a linked
// worktree or a submodule (gitrepository-layout(5)).
func Elsewhere(file []byte) (dir string, ok bool) {
	dir, ok = strings.CutPrefix(strings.TrimRight(string(file), "\r\n"), "gitdir: ")
	return dir, ok && dir != "" && !strings.ContainsAny(dir, "\n\x00")
}

// valuesOf returns the values of a variable in the order of the file.
func (c *Config) valuesOf(section, sub, key string) (list []string) {
	for _, e := range c.entries {
		if e.Section == section && e.Sub == sub && e.Key == key {
			list = append(list, e.Value)
		}
	}
	return list
}

func (c *Config) lastValue(section, sub, key string) string {
	list := c.valuesOf(section, sub, key)
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

// Last returns the value that git uses of a variable of a section without a subsection, or "".
func (c *Config) Last(section, key string) string { return c.lastValue(section, "", key) }

// IsTrue reports whether a variable of a section without a subsection is true, as git-config(1) reads a boolean.
func (c *Config) IsTrue(section, key string) (is bool) {
	for _, e := range c.entries {
		if e.Section == section && e.Sub == "" && e.Key == key {
			is = e.IsTrue()
		}
	}
	return is
}

// Names returns the names of the remotes that have an address, sorted.
func (c *Config) Names() (names []string) {
	for _, e := range c.entries {
		if e.Section == "remote" && e.Sub != "" && (e.Key == "url" || e.Key == "pushurl") {
			names = append(names, e.Sub)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Default returns the remote that git uses on a branch if a command line names none.
func (c *Config) Default(branch string, p Purpose) (string, error) {
	var chosen []string
	if p == Push {
		chosen = append(chosen, c.lastValue("branch", branch, "pushremote"), c.lastValue("remote", "", "pushdefault"))
	}
	chosen = append(chosen, c.lastValue("branch", branch, "remote"))
	for _, name := range chosen {
		if name != "" {
			return name, nil
		}
	}
	names := c.Names()
	switch {
	case slices.Contains(names, "origin"):
		return "origin", nil
	case len(names) == 0:
		return "", bailey.Invalid.New("this repository has no remote", "git remote add origin URL makes one")
	}
	return "", bailey.Invalid.New("the branch has no upstream, and no remote is called origin",
		"name one of the remotes: "+strings.Join(names, ", "))
}

// Resolve returns the address of a remote. It refuses every key that would make git do anything else than the call
// says.
func (c *Config) Resolve(name string, p Purpose) (Remote, error) {
	none := Remote{}
	if !remoteName().MatchString(name) || strings.Contains(name, "..") {
		return none, bailey.Invalid.Errorf("name a remote of the repository; git remote lists them",
			"%q is no name of a remote", clipText(name))
	}
	for _, e := range c.entries {
		if why := refusalReason(e, name, p); why != "" {
			return none, refusedKey(e, why)
		}
	}
	urls := c.valuesOf("remote", name, "url")
	// Without a url, git would also read .git/remotes, which can name what is pushed.
	if pushes := c.valuesOf("remote", name, "pushurl"); p == Push && len(urls) > 0 && len(pushes) > 0 {
		urls = pushes
	}
	switch len(urls) {
	case 0:
		hint := "git remote add " + name + " URL makes it"
		if names := c.Names(); len(names) > 0 {
			hint = "the remotes are " + strings.Join(names, ", ")
		}
		return none, bailey.NotFound.New("this repository has no remote "+name, hint)
	case 1:
	default:
		return none, bailey.Invalid.Errorf("leave one: git remote set-url "+name+" URL",
			"remote %s has %d addresses, and a call reaches one", name, len(urls))
	}
	url, err := Address(urls[0])
	if err != nil {
		return none, bailey.KindOf(err).Errorf(bailey.HintOf(err), "remote %s: %s", name, err) // agents see the message alone
	}
	return Remote{Name: name, URL: url, Spelled: urls[0]}, nil
}

// All resolves every remote of a repository, sorted by name.
func (c *Config) All(p Purpose) (list []Remote, err error) {
	names := c.Names()
	if len(names) == 0 {
		return nil, bailey.Invalid.New("this repository has no remote", "git remote add origin URL makes one")
	}
	for _, e := range c.entries {
		if e.Section == "remotes" {
			return nil, refusedKey(e, "makes groups of remotes")
		}
		if e.Section == "remote" && e.Sub != "" && !slices.Contains(names, e.Sub) {
			return nil, refusedKey(e, "is of a remote without an address")
		}
	}
	for _, name := range names {
		r, err := c.Resolve(name, p)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func refusedKey(e Entry, why string) error {
	return bailey.Denied.Errorf("a person can take it out: git config --unset-all '"+clipText(e.Name())+"'",
		"%s in .git/config line %d %s", clipText(e.Name()), e.Line, why)
}

// Keys that are known to be harmless in their sections. Every other key of these sections is refused.
var (
	remoteKeys = []string{"url", "pushurl", "fetch", "tagopt", "prune", "skipdefaultupdate", "skipfetchall",
		"gh-resolved", "followremotehead"}
	httpKeys = []string{"postbuffer", "lowspeedlimit", "lowspeedtime", "version", "maxrequests", "minsessions", "noepsv"}
	extKeys  = []string{"objectformat", "noop", "preciousobjects", "compatobjectformat", "refstorage"}
)

// refusalReason returns why a variable is refused in a call that uses the named remote, or "".
func refusalReason(e Entry, name string, p Purpose) string {
	switch e.Section {
	case "include", "includeif":
		return "includes another file"
	case "url":
		return "rewrites addresses"
	case "http":
		if !slices.Contains(httpKeys, e.Key) {
			return "changes how a server is reached"
		}
	case "credential":
		if e.Sub != "" {
			return "changes how a server is reached"
		}
	case "remotes":
		if strings.EqualFold(strings.TrimPrefix(e.Name(), "remotes."), name) {
			return "makes this name a group of remotes"
		}
	case "extensions":
		if !slices.Contains(extKeys, e.Key) || e.Key == "refstorage" && e.Value != "files" {
			return "is an extension that is not supported here"
		}
	case "remote":
		if e.Sub == name {
			return remoteRefusal(e, name)
		}
	}
	return commandRefusal(e, p)
}

// commandRefusal is about keys that change what the command does at the other side, or which program it runs here.
func commandRefusal(e Entry, p Purpose) string {
	switch key := e.Section + "." + e.Key; {
	case key == "push.pushoption" && p == Push:
		return "sends options that the call does not state"
	case key == "fetch.bundleuri":
		return "names another address"
	case p != Pull:
	case key == "pull.twohead", key == "pull.octopus":
		return "names a program that merges"
	case e.Section == "branch" && e.Key == "mergeoptions":
		return "adds options that the call does not state"
	}
	return ""
}

func remoteRefusal(e Entry, name string) string {
	switch {
	case e.Bare:
		return "has no value"
	case !slices.Contains(remoteKeys, e.Key):
		return "changes what the name " + name + " means"
	case e.Key == "tagopt" && e.Value != "--tags" && e.Value != "--no-tags":
		return "is none of --tags and --no-tags"
	case e.Key == "fetch" && !isTracking(e.Value, name):
		return "writes to other places than refs/remotes/" + name + " and refs/tags"
	}
	return ""
}

// isTracking reports whether a refspec writes only what belongs to the remote.
func isTracking(spec, name string) bool {
	if notSpec().MatchString(spec) {
		return true
	}
	parts := fetchSpec().FindStringSubmatch(spec)
	if parts == nil || strings.Contains(spec, "..") {
		return false
	}
	return strings.HasPrefix(parts[2], "refs/remotes/"+name+"/") || strings.HasPrefix(parts[2], "refs/tags/")
}

// Address returns the https address of what a configuration or a command line spells in one of several ways. Errors do
// not contain the address if it has a password.
func Address(spelled string) (string, error) {
	if m := httpsURL().FindStringSubmatch(spelled); m != nil {
		return checkedURL(m[2], m[3], spelled)
	}
	if m := sshURL().FindStringSubmatch(spelled); m != nil {
		host := m[1] + m[2]
		if !slices.Contains(sameOverHTTPS, host) {
			return "", bailey.Invalid.Errorf("git remote set-url NAME https://… names it by https",
				"%s is reached over ssh, and a call speaks https", host)
		}
		return checkedURL(host, m[3], spelled)
	}
	scheme, rest, isURL := strings.Cut(spelled, "://")
	switch {
	case scheme == "file" && isURL, strings.HasPrefix(spelled, "/"), strings.HasPrefix(spelled, "./"), strings.HasPrefix(spelled, "../"):
		return "", bailey.Invalid.New("it is a directory of this machine, and a call by the name of a remote speaks https",
			"to push a branch there, call git.push with that directory, a bare repository in a workspace, as its input to")
	case isURL && strings.Contains(rest[:strings.IndexAny(rest+"/", "/")], "@"):
		return "", bailey.Invalid.New("its address has a user or a password",
			"take it out: git remote set-url NAME https://HOST/PATH; the broker lends what the call needs")
	case isURL:
		return "", bailey.Invalid.Errorf("git remote set-url NAME https://… names it by https",
			"its address is %s://…, or holds characters that are not supported", clipText(scheme))
	case strings.Contains(spelled, "::"):
		return "", bailey.Invalid.New("its address names a program", "git remote set-url NAME https://… names it by https")
	}
	return "", bailey.Invalid.New("its address is neither https:// nor git@ of a known service",
		"git remote set-url NAME https://… names it by https; git.push takes a directory of this machine")
}

// checkedURL refuses a path that two programs can understand differently.
func checkedURL(host, path, spelled string) (string, error) {
	for part := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return "", bailey.Invalid.Errorf("write the path of the repository plainly", "%q has an odd path", clipText(spelled))
		}
	}
	if strings.HasPrefix(host, ".") || strings.HasPrefix(host, "-") {
		return "", bailey.Invalid.Errorf("", "%q names no host", clipText(host))
	}
	return fmt.Sprintf("https://%s/%s", host, strings.TrimSuffix(path, "/")), nil
}

// clipText shortens text of a repository for an error, and makes it one line of printable characters.
func clipText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}
