package pack

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bailey"
)

const remotePack = `name: demo
version: 1.0.0
capabilities:
  - name: push
    backend: {type: subprocess, command: demo, args: ['{{ input.options }}', '{{ input.remote }}'], cwdFromInput: repo}
    risk: low
    sideEffectClass: mutating
    reversibility: externallyReversible
    remote: {repo: repo, name: remote, url: url, options: options, for: push}
    sandboxProfile: {network: {egress: ['{{ input.url }}']}}
    credentials:
      - {name: token, env: TOKEN, inject: {to: ['github.com:443', 'gitlab.com:443'], headers: [Authorization], below: url}}
    inputSchema: &schema
      type: object
      required: [repo]
      properties:
        repo: {type: string, format: path}
        remote: {type: string}
        url: {type: string, format: url, x-bailey: {allow: [url]}}
        options: {type: array, items: {type: string, x-bailey: {allow: [option, url]}}}
        urls: {type: array, items: {type: string, format: url, x-bailey: {allow: [url]}}}
`

// demoRemote returns the capability of a changed remotePack.
func demoRemote(t *testing.T, changes ...string) (*Capability, error) {
	t.Helper()
	text := strings.NewReplacer(append(changes, "&schema", "")...).Replace(remotePack)
	p, err := parsePack("demo.yaml", []byte(text), true)
	if err != nil {
		return nil, err
	}
	return p.Capabilities[0], nil
}

// all makes the capability use every remote.
var all = []string{"name: remote, url: url", "url: urls", "'{{ input.url }}'", "'{{ input.urls }}'", "below: url", "below: urls", "for: push", "for: fetch"}

const config = "[remote \"origin\"]\n\turl = git@github.com:a/b.git\n[remote \"theirs\"]\n\turl = https://git.example.org/c/b\n[branch \"topic\"]\n\tremote = theirs\n"

// files reads from a map.
func files(m map[string]string) func(string) ([]byte, bool, error) {
	return func(name string) ([]byte, bool, error) {
		text, there := m[name]
		if text == "FAULT" {
			return nil, false, errors.New("a fault")
		}
		return []byte(text), there, nil
	}
}

// TestResolveRemote checks which inputs are filled in, and that a value of the caller cannot replace one.
func TestResolveRemote(t *testing.T) {
	m, err := demoRemote(t)
	if err != nil {
		t.Fatal(err)
	}
	read := files(map[string]string{".git/config": config, ".git/HEAD": "ref: refs/heads/topic\n"})
	origin := map[string]any{"repo": "/r", "remote": "origin", "url": "https://github.com/a/b.git",
		"options": []any{"-c", "url.https://github.com/a/b.git.insteadOf=git@github.com:a/b.git"}}
	for _, try := range []struct{ input, want map[string]any }{
		{map[string]any{"repo": "/r", "remote": "origin"}, origin},
		{origin, origin},
		{map[string]any{"repo": "/r"}, map[string]any{"repo": "/r", "remote": "theirs", "url": "https://git.example.org/c/b",
			"options": []any{"-c", "url.https://git.example.org/c/b.insteadOf=https://git.example.org/c/b"}}},
		{map[string]any{"repo": "/r", "remote": "origin", "url": "https://evil.example/a"}, nil},
		{map[string]any{"repo": "/r", "remote": "origin", "options": []any{"-c", "url.https://evil.example/.insteadOf=git@github.com:"}}, nil},
		{map[string]any{"repo": "/r", "remote": "nothing"}, nil},
	} {
		got, err := m.ResolveRemote(try.input, read)
		if (err == nil) != (try.want != nil) || err == nil && !reflect.DeepEqual(got, try.want) {
			t.Errorf("%v: %v, %v", try.input, got, err)
		}
	}
	if m, err = demoRemote(t, all...); err != nil {
		t.Fatal(err)
	}
	got, err := m.ResolveRemote(map[string]any{"repo": "/r"}, read)
	if err != nil || !reflect.DeepEqual(got["urls"], []any{"https://github.com/a/b.git", "https://git.example.org/c/b"}) || len(got["options"].([]any)) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	if places, err := m.Egress(got); err != nil || !slices.Equal(places, []string{"git.example.org:443", "github.com:443"}) {
		t.Errorf("%q, %v", places, err)
	}
	if wants := m.WantsFor(got); len(wants) != 1 || !slices.Equal(wants[0].Inject.To, []string{"github.com:443"}) || !slices.Equal(wants[0].Inject.Paths, []string{"github.com:443/a/b.git"}) {
		t.Errorf("%+v", wants)
	}
	if wants := m.WithoutBroker().WantsFor(got); len(wants) > 0 {
		t.Errorf("%+v", wants)
	}
}

// TestRepositoryElsewhere checks that a directory that is not a complete repository is refused with the reason.
func TestRepositoryElsewhere(t *testing.T) {
	m, err := demoRemote(t)
	if err != nil {
		t.Fatal(err)
	}
	for want, have := range map[string]map[string]string{
		"no .git/config":  {},
		"linked worktree": {".git": "gitdir: /w/main/.git/worktrees/x\n"},
		"no .git/config ": {".git": "something else"},
		"commondir":       {".git/config": config, ".git/commondir": "../../x"},
		"a fault":         {".git/config": "FAULT"},
		"a fault ":        {".git/config": config, ".git/HEAD": "FAULT"},
		"line 1":          {".git/config": "nothing"},
	} {
		if _, err := m.ResolveRemote(map[string]any{"repo": "/r"}, files(have)); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v", have, err)
		}
	}
}

// TestWantsBelow checks that a credential is wanted only for an address at one of its places, and only below it.
func TestWantsBelow(t *testing.T) {
	m, err := demoRemote(t)
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://github.com/a/b.git": "github.com:443/a/b.git", "https://gitlab.com:443/x/y/": "gitlab.com:443/x/y",
		"https://github.com/a": "", "https://github.com/a/": "", "https://github.com//a": "", // an owner
		"https://github.com/": "", "https://github.com:8443/a": "", "https://github.com.evil.example/a": "",
		"https://git.example.org/a": "", "http://github.com/a": "",
	} {
		input := map[string]any{"url": url}
		wants := m.WantsFor(input)
		j := bailey.Job{EnvNames: []string{"TOKEN"}}
		m.SetUnlent(&j, input)
		if want == "" {
			if len(wants) > 0 || len(j.EnvNames) > 0 || !slices.Equal(j.Env, []string{"TOKEN="}) {
				t.Errorf("%s: %+v, %+v", url, wants, j)
			}
		} else if len(wants) != 1 || len(wants[0].Inject.To) != 1 || !slices.Equal(wants[0].Inject.Paths, []string{want}) || len(j.EnvNames) != 1 || len(j.Env) > 0 {
			t.Errorf("%s: %+v, %+v", url, wants, j)
		}
	}
	if len(m.RequiredWants()) > 0 || len(m.Wants()) != 1 || len(m.WithoutBroker().WantsFor(map[string]any{"url": "https://github.com/a/b"})) != 1 {
		t.Error("a push needs its credential, and only then")
	}
}

// TestRemoteFaults checks which manifests are refused.
func TestRemoteFaults(t *testing.T) {
	literal := []string{"['{{ input.url }}']", "['github.com:443', 'gitlab.com:443']"}
	for _, try := range []struct {
		want    string
		changes []string
	}{
		{`"something"`, []string{"for: push", "for: something"}},
		{"repo to be a path input", []string{"repo: repo,", "repo: remote,"}},
		{"name to be a string", []string{"name: remote,", "name: options,"}},
		{"url a string", []string{"url: url,", "url: remote,"}},
		{"url to be a list", []string{"name: remote, ", ""}},
		{"options to be a list", []string{"options: options", "options: urls"}},
		{"is not in network.egress", append([]string{", below: url", ""}, literal...)},
		{"inject needs below", append([]string{"options: options", "options: options"}, literal...)},
		{"sends a credential", []string{", below: url", ""}},
		{"options", []string{", options: options", ""}},
	} {
		if _, err := demoRemote(t, try.changes...); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v", try.want, err)
		}
	}
	if _, err := Parse("demo.yaml", []byte(strings.ReplaceAll(remotePack, "&schema", ""))); err == nil || !strings.Contains(err.Error(), "built-in") {
		t.Error(err)
	}
}
