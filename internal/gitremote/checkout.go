package gitremote

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Checkout is the configuration of one checkout.
type Checkout struct {
	Remotes []ConfiguredRemote // sorted by name

	head   string // content of HEAD
	config *Config
}

// ConfiguredRemote is a remote as configured. Its addresses are not checked.
type ConfiguredRemote struct {
	Name     string
	URL      string // the first address; "" if there is none
	PushURL  string // the first address for pushing; "" if it is the same
	Resolved string // gh-resolved, which gh repo set-default writes
}

// Read reads a file of at most 1 MiB. If there is none, the error is [fs.ErrNotExist].
type Read func(path string) ([]byte, error)

const maxNames = 4096 // bytes of a file with one path or reference

// OpenCheckout reads the checkout whose .git is in dir. A .git that is a file names the directory of a linked worktree.
func OpenCheckout(dir string, read Read) (*Checkout, error) {
	own := filepath.Join(dir, ".git")
	common := own
	if text, err := read(own); err == nil {
		path, ok := strings.CutPrefix(string(text), "gitdir: ")
		if path = strings.TrimRight(path, "\r\n"); !ok || path == "" || len(path) > maxNames {
			return nil, errors.New(".git is a file of an unknown form")
		}
		own = absolutePath(dir, path)
		common = own
		if text, err := read(filepath.Join(own, "commondir")); err == nil {
			common = absolutePath(own, strings.TrimRight(string(text), "\r\n"))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	config, err := read(filepath.Join(common, "config"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration of the repository: %w", err)
	}
	c := &Checkout{}
	if c.config, err = Parse(config); err != nil {
		return nil, fmt.Errorf("cannot read the configuration of the repository: %w", err)
	}
	if len(c.config.valuesOf("extensions", "", "worktreeconfig")) > 0 {
		text, err := read(filepath.Join(own, "config.worktree"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		more, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read config.worktree: %w", err)
		}
		c.config.entries = append(c.config.entries, more.entries...)
	}
	for _, e := range c.config.entries {
		switch e.Section {
		case "include", "includeif":
			return nil, errors.New("the configuration of the repository includes other files")
		case "url":
			return nil, errors.New("the configuration of the repository rewrites addresses (url." + e.Key + ")")
		}
	}
	head, err := read(filepath.Join(own, "HEAD"))
	if err != nil {
		return nil, fmt.Errorf("cannot read HEAD: %w", err)
	}
	c.head = string(head)
	c.collectRemotes()
	return c, nil
}

func absolutePath(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func (c *Checkout) collectRemotes() {
	at := map[string]int{}
	for _, s := range c.config.entries {
		if s.Section != "remote" || s.Sub == "" {
			continue
		}
		i, ok := at[s.Sub]
		if !ok {
			i = len(c.Remotes)
			at[s.Sub] = i
			c.Remotes = append(c.Remotes, ConfiguredRemote{Name: s.Sub})
		}
		switch r := &c.Remotes[i]; s.Key {
		case "url":
			r.URL = cmp.Or(r.URL, s.Value)
		case "pushurl":
			r.PushURL = cmp.Or(r.PushURL, s.Value)
		case "gh-resolved":
			r.Resolved = s.Value
		}
	}
	slices.SortFunc(c.Remotes, func(a, b ConfiguredRemote) int { return strings.Compare(a.Name, b.Name) })
}

// GitHub is a repository at github.com.
type GitHub struct{ Owner, Name string }

func (g GitHub) String() string { return g.Owner + "/" + g.Name }

var repositoryName = lazyRegexp(`^([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})$`)

func parseGitHub(name string) (GitHub, bool) {
	found := repositoryName().FindStringSubmatch(name)
	if found == nil || strings.Trim(found[2], ".") == "" {
		return GitHub{}, false
	}
	return GitHub{found[1], found[2]}, true
}

// hosts are the names of github.com. ssh.github.com serves SSH at port 443.
var hosts = []string{"github.com", "www.github.com", "ssh.github.com"}

var schemes = []string{"https", "http", "ssh", "git", "git+ssh", "git+https"}

// ParseGitHub returns the repository of an address, and false if it is not at github.com.
func ParseGitHub(address string) (GitHub, bool) {
	if !strings.Contains(address, "://") {
		host, path, ok := strings.Cut(address, ":")
		if !ok || strings.ContainsAny(host, `/\`) {
			return GitHub{}, false
		}
		address = "ssh://" + host + "/" + strings.TrimPrefix(path, "/")
	}
	u, err := url.Parse(address)
	if err != nil || !slices.Contains(schemes, u.Scheme) || !slices.Contains(hosts, strings.ToLower(u.Hostname())) ||
		u.RawQuery != "" || u.Fragment != "" {
		return GitHub{}, false
	}
	return parseGitHub(strings.TrimSuffix(strings.Trim(u.EscapedPath(), "/"), ".git"))
}

// GitHub returns the repository of a remote.
func (r ConfiguredRemote) GitHub() (GitHub, bool) {
	if g, ok := ParseGitHub(r.URL); ok {
		return g, true
	}
	return ParseGitHub(r.PushURL)
}

// sortRank orders remotes as gh does.
func (r ConfiguredRemote) sortRank() int {
	return slices.Index([]string{"origin", "github", "upstream"}, strings.ToLower(r.Name))
}

// Repository returns the repository that gh would use without a question: the one that gh repo set-default chose, or
// that of the remote upstream, github, origin or, by name, the first other one. If chosen is not set, it ignores the
// former.
func (c *Checkout) Repository(chosen bool) (GitHub, error) {
	var list []ConfiguredRemote
	for _, r := range c.Remotes {
		if _, ok := r.GitHub(); ok {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return GitHub{}, errors.New("no remote of the repository is at github.com")
	}
	slices.SortStableFunc(list, func(a, b ConfiguredRemote) int { return cmp.Compare(b.sortRank(), a.sortRank()) })
	for _, r := range list {
		switch g, ok := parseGitHub(r.Resolved); {
		case !chosen:
		case r.Resolved == "base":
			g, _ := r.GitHub()
			return g, nil
		case ok:
			return g, nil
		case r.Resolved != "":
			return GitHub{}, fmt.Errorf("gh-resolved of the remote %q names no repository at github.com", r.Name)
		}
	}
	g, _ := list[0].GitHub()
	return g, nil
}

var (
	branchName = lazyRegexp(`^[^\x00-\x20\x7f~^:?*\[\\]{1,250}$`)
	pullRef    = lazyRegexp(`^refs/pull/([1-9][0-9]{0,9})/head$`)
	digits     = lazyRegexp(`^#?[0-9]+$`)
)

// Branch returns the current branch.
func (c *Checkout) Branch() (string, error) {
	name, ok := strings.CutPrefix(strings.TrimRight(c.head, "\n"), "ref: refs/heads/")
	if !ok || !branchName().MatchString(name) || strings.HasPrefix(name, "-") {
		return "", errors.New("no branch is checked out")
	}
	return name, nil
}

// PullRequest returns the words with which gh finds the pull request of the current branch in a repository: BRANCH,
// OWNER:BRANCH, or a number if the branch follows a pull request.
func (c *Checkout) PullRequest(in GitHub) (string, error) {
	branch, err := c.Branch()
	if err != nil {
		return "", err
	}
	merge, remote := c.config.lastValue("branch", branch, "merge"), c.config.lastValue("branch", branch, "remote")
	if found := pullRef().FindStringSubmatch(merge); found != nil {
		return found[1], nil
	}
	var from GitHub
	var ok bool
	if i := slices.IndexFunc(c.Remotes, func(r ConfiguredRemote) bool { return r.Name == remote }); i >= 0 {
		from, ok = c.Remotes[i].GitHub()
	} else {
		from, ok = ParseGitHub(remote)
	}
	if ok {
		if name, has := strings.CutPrefix(merge, "refs/heads/"); has {
			branch = name
		}
		if !strings.EqualFold(from.Owner, in.Owner) {
			return from.Owner + ":" + branch, nil
		}
	}
	if digits().MatchString(branch) || strings.HasPrefix(branch, "-") {
		return "", fmt.Errorf("the branch %q would be read as a number or an option", branch)
	}
	return branch, nil
}
