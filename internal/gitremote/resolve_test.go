package gitremote

import (
	"strings"
	"testing"

	"bailey"
)

const plain = `[core]
	repositoryformatversion = 0
	sshCommand = something
[remote "origin"]
	url = https://github.com/a/b.git
	fetch = +refs/heads/*:refs/remotes/origin/*
	fetch = ^refs/heads/private/*
	fetch = +refs/tags/*:refs/tags/*
	tagOpt = --no-tags
	prune = true
	gh-resolved = base
[remote "theirs"]
	url = git@github.com:c/b.git
	uploadpack = something
[branch "main"]
	remote = origin
	merge = refs/heads/main
[branch "topic"]
	remote = theirs
	pushRemote = origin
[pull]
	rebase = true
[http]
	postBuffer = 1000000
[credential]
	helper = store
`

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestResolves checks the address of each remote, for fetching and for pushing.
func TestResolves(t *testing.T) {
	for more, want := range map[string]Remote{
		"": {"origin", "https://github.com/a/b.git", "https://github.com/a/b.git"},
		"[remote \"origin\"]\n\tpushurl = git@gitlab.com:a/c.git\n": {"origin", "https://gitlab.com/a/c.git", "git@gitlab.com:a/c.git"},
	} {
		if r, err := parsed(t, plain+more).Resolve("origin", Push); err != nil || r != want {
			t.Errorf("%q: %+v, %v", more, r, err)
		}
		if r, err := parsed(t, plain+more).Resolve("origin", Fetch); err != nil || r.URL != "https://github.com/a/b.git" {
			t.Errorf("%q: %+v, %v", more, r, err)
		}
	}
}

// TestRefusals checks that every key that changes the meaning of a remote is refused by its name, with a cure.
func TestRefusals(t *testing.T) {
	origin := func(line string) string { return "[remote \"origin\"]\n\t" + line + "\n" }
	for more, want := range map[string]string{
		"[include]\n\tpath = x\n":                                           "include.path",
		"[includeIf \"gitdir:/\"]\n\tpath = x\n":                            "includeif.gitdir:/.path",
		"[url \"ext::x\"]\n\tinsteadOf = https://\n":                        "url.ext::x.insteadof",
		"[url \"https://evil.example/\"]\n\tpushInsteadOf = https:\n":       "pushinsteadof",
		"[http]\n\tproxy = evil.example\n":                                  "http.proxy",
		"[http \"https://github.com\"]\n\textraHeader = X: y\n":             "extraheader",
		"[credential \"https://github.com\"]\n\thelper = !x\n":              "credential.https://github.com.helper",
		"[remotes]\n\tOrigin = evil\n":                                      "remotes.origin",
		origin("pruneTags = true"):                                          "remote.origin.prunetags",
		"[extensions]\n\tworktreeConfig = true\n":                           "worktreeconfig",
		"[extensions]\n\tpartialClone = origin\n":                           "partialclone",
		"[extensions]\n\trefStorage = reftable\n":                           "refstorage",
		"[fetch]\n\tbundleURI = https://evil.example/x\n":                   "bundleuri",
		"[push]\n\tpushOption = x\n":                                        "push.pushoption",
		origin("proxy = evil.example"):                                      "remote.origin.proxy",
		origin("uploadpack = x"):                                            "uploadpack",
		origin("receivepack = x"):                                           "receivepack",
		origin("vcs = ext"):                                                 "vcs",
		origin("mirror = true"):                                             "mirror",
		origin("push = +refs/heads/*"):                                      "remote.origin.push",
		origin("promisor = true"):                                           "promisor",
		origin("serverOption = x"):                                          "serveroption",
		origin("url"):                                                       "has no value",
		origin("tagOpt = --upload-pack=x"):                                  "tagopt",
		origin("fetch = +refs/heads/*:refs/heads/*"):                        "remote.origin.fetch",
		origin("fetch = +refs/*:refs/*"):                                    "remote.origin.fetch",
		origin("fetch = refs/heads/main:refs/remotes/origin/../../heads/x"): "remote.origin.fetch",
		origin("fetch = main"):                                              "remote.origin.fetch",
		origin("url = https://other.example/x"):                             "2 addresses",
	} {
		_, err := parsed(t, plain+more).Resolve("origin", Push)
		if err == nil || !strings.Contains(err.Error(), want) || bailey.HintOf(err) == "" {
			t.Errorf("%q: %v, want %q", more, err, want)
		}
	}
	for more, want := range map[string]string{
		"[pull]\n\ttwohead = x\n":                    "pull.twohead",
		"[branch \"main\"]\n\tmergeOptions = -s x\n": "branch.main.mergeoptions",
	} {
		if _, err := parsed(t, plain+more).Resolve("origin", Pull); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", more, err)
		}
		if _, err := parsed(t, plain+more).Resolve("origin", Push); err != nil {
			t.Errorf("%q: %v", more, err)
		}
	}
	for text, want := range map[string]string{
		"[remote \"origin\"]\n\tpushurl = https://github.com/a/b\n": "no remote origin", // git reads .git/remotes too
	} {
		if _, err := parsed(t, text).Resolve("origin", Push); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	group := "[remote \"my.origin\"]\n\turl = https://github.com/a/b\n[remotes \"my\"]\n\torigin = a b\n"
	if _, err := parsed(t, group).Resolve("my.origin", Fetch); err == nil || !strings.Contains(err.Error(), "remotes.my.origin") {
		t.Errorf("a group with a dot: %v", err)
	}
	for name, want := range map[string]string{"nothing": "no remote nothing", "ext::x": "no name", "-x": "no name", "": "no name", "a..b": "no name", "theirs": "uploadpack"} {
		if _, err := parsed(t, plain).Resolve(name, Fetch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAddress checks which spellings of an address are understood, and that a refusal never shows a password.
func TestAddress(t *testing.T) {
	for spelled, want := range map[string]string{
		"https://github.com/a/b.git":           "https://github.com/a/b.git",
		"https://github.com/a/b/":              "https://github.com/a/b",
		"https://git.example.org:8443/x/y/z":   "https://git.example.org:8443/x/y/z",
		"https://me@dev.example.org/a/b":       "https://dev.example.org/a/b",
		"git@github.com:a/b.git":               "https://github.com/a/b.git",
		"git@github.com:/a/b.git":              "https://github.com/a/b.git",
		"ssh://git@gitlab.com/group/sub/b.git": "https://gitlab.com/group/sub/b.git",
		"git@git.example.org:a/b.git":          "",
		"me@github.com:a/b.git":                "",
		"git@github.com/a/b.git":               "",
		"ssh://git@github.com:22/a/b.git":      "",
		"ssh://git@github.com:a/b.git":         "",
		"https://me:secret@github.com/a/b.git": "",
		"http://github.com/a/b.git":            "",
		"git://github.com/a/b.git":             "",
		"file:///a/b.git":                      "",
		"ext::sh -c x":                         "",
		"https::https://github.com/a/b.git":    "",
		"../b.git":                             "",
		"/srv/b.git":                           "",
		"-x":                                   "",
		"https://github.com/a/../b.git":        "",
		"https://github.com//a/b.git":          "",
		"https://github.com/a%2fb":             "",
		"https://github.com/a/b.git?x":         "",
		"https://github.com":                   "",
		"https://.example.org/a":               "",
		"https://github.com/a b":               "",
		"git@github.com:a/./b.git":             "",
	} {
		got, err := Address(spelled)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", spelled, got, err)
		}
		if err != nil && strings.Contains(err.Error()+bailey.HintOf(err), "secret") {
			t.Errorf("%s: %v", spelled, err)
		}
	}
}

// TestDefault checks which remote a command without a name uses.
func TestDefault(t *testing.T) {
	for _, try := range []struct {
		text, branch string
		p            Purpose
		want         string
	}{
		{plain, "main", Push, "origin"}, {plain, "topic", Fetch, "theirs"}, {plain, "topic", Push, "origin"},
		{plain, "other", Pull, "origin"}, {plain, "", Fetch, "origin"},
		{plain + "[remote]\n\tpushDefault = theirs\n", "main", Push, "theirs"},
		{plain + "[remote]\n\tpushDefault = theirs\n", "main", Fetch, "origin"},
		{plain + "[branch \"main\"]\n\tremote = theirs\n", "main", Fetch, "theirs"},
		{"[remote \"a\"]\n\turl = x\n", "main", Fetch, ""}, {"", "main", Push, ""},
	} {
		if got, err := parsed(t, try.text).Default(try.branch, try.p); got != try.want || (err == nil) != (got != "") {
			t.Errorf("%s, %s: %q, %v", try.branch, try.p, got, err)
		}
	}
	for head, want := range map[string]string{"ref: refs/heads/a/b\n": "a/b", "ref: refs/tags/a\n": "", "0123\n": "", "ref: refs/heads/a\nb\n": ""} {
		if got := Branch([]byte(head)); got != want {
			t.Errorf("%q: %q", head, got)
		}
	}
	if dir, ok := Elsewhere([]byte("gitdir: ../.git/modules/x\n")); dir != "../.git/modules/x" || !ok {
		t.Error(dir, ok)
	}
	if _, ok := Elsewhere([]byte("[core]\n")); ok {
		t.Error("no file .git")
	}
}

// TestAll checks that all remotes are resolved, or none.
func TestAll(t *testing.T) {
	good := strings.Replace(plain, "\tuploadpack = something\n", "", 1)
	list, err := parsed(t, good).All(Fetch)
	if err != nil || len(list) != 2 || list[0].Name != "origin" || list[1].URL != "https://github.com/c/b.git" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, text := range []string{plain, good + "[remote \"x\"]\n\turl = /srv/x\n", good + "[remotes]\n\tdefault = origin\n", good + "[remote \"y\"]\n\tvcs = ext\n", ""} {
		if list, err := parsed(t, text).All(Fetch); err == nil {
			t.Errorf("%+v", list)
		}
	}
}
