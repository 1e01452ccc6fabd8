package settings

import (
	"errors"
	"strings"
	"testing"

	"bailey"
)

// TestProfileIsStrict checks that a profile is understood as a whole, or that the file is refused with the position of
// the error.
func TestProfileIsStrict(t *testing.T) {
	whole := `description: looking at production
packs: [git, kubectl]
capabilities: ["git.*", kubectl.get]
environment: production
workspaces: [/srv/app]
endpoints:
  - {to: "api.corp.example:443", private: true, for: [kubectl.get]}
secrets:
  - {for: ["kubectl.*"], name: token, from: prod-kube}
folders:
  - {input: repo, path: /srv/app}
`
	p, err := ParseProfile("profiles/prod.yaml", []byte(whole))
	if err != nil || len(p.Packs) != 2 || p.Environment != "production" || !p.Endpoints[0].Private || p.Secrets[0].From != "prod-kube" || p.Folders[0].Path != "/srv/app" {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err := ParseProfile("p", nil); err != nil || p.hasSelection() {
		t.Errorf("an empty profile says %+v, %v", p, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":       {"pack: [git]\n", `profiles/prod.yaml:1:1: "pack" is not a part of a profile`},
		"key twice":         {"packs: [git]\npacks: [git]\n", "already defined"},
		"no pack":           {"packs: []\n", "packs must name at least one"},
		"pack twice":        {"packs: [git, git]\n", "each once"},
		"pattern as pack":   {"packs: [\"*\"]\n", "lower case letters"},
		"strange pattern":   {"capabilities: [\"git.[a-z]\"]\n", "lower case letters"},
		"relative folder":   {"folders: [{input: repo, path: srv}]\n", "absolute"},
		"unclean folder":    {"folders: [{input: repo, path: /srv/../etc}]\n", "clean"},
		"secret half":       {"secrets: [{name: token}]\n", "name, as in the manifest, and from"},
		"relative place":    {"workspaces: [srv]\n", "absolute, clean path"},
		"metadata":          {"endpoints: [{to: \"169.254.169.254:80\", private: true}]\n", "profiles/prod.yaml:1:"},
		"two documents":     {"packs: [git]\n---\npacks: [http]\n", "2 documents"},
		"anchors":           {"packs: &a [git]\n", "anchors"},
		"a list":            {"- git\n", "must have keys and values"},
		"not UTF-8":         {"description: \xff\n", "UTF-8"},
		"environment, many": {"environment: a b\n", "lower case letters"},
	} {
		if _, err := ParseProfile("profiles/prod.yaml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) || bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		} else if !strings.Contains(bailey.HintOf(err), "bailey profile use") {
			t.Errorf("%s: hint %q", name, bailey.HintOf(err))
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte("packs: [git]\nfolders: [{input: repo, path: /srv}]\nsecrets: [{name: a, from: b}]\n"))
	f.Add([]byte("endpoints: [{to: \"a.example:443\", for: [\"git.*\"]}]\nworkspaces: [/srv/app]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProfile("p.yaml", text)
		if err != nil && bailey.KindOf(err) != bailey.Invalid {
			t.Fatalf("%v is of no kind", err)
		}
		s := Stack{InUse: InUse{Profiles: []UsedProfile{{Name: "p", Profile: p}}}}
		if s.Admit("t.x", "t") != nil && !p.hasSelection() {
			t.Fatal("a profile that says nothing refuses")
		}
	})
}

func stackOf(profiles ...Profile) Stack {
	var s Stack
	for i, p := range profiles {
		s.Profiles = append(s.Profiles, UsedProfile{Name: string(rune('a' + i)), Profile: p})
	}
	return s
}

// TestStack checks that the lists of several profiles add up and that the last profile determines single values and
// bindings. If profiles have lists, a capability in none of them must not be admitted.
func TestStack(t *testing.T) {
	look := Profile{Packs: []string{"git"}, Capabilities: []string{"git.log"}, Environment: "staging",
		Secrets: []SecretBind{{Name: "token", From: "one"}}, Folders: []FolderBind{{Input: "repo", Path: "/a"}}}
	more := Profile{Packs: []string{"http"}, Environment: "production", Secrets: []SecretBind{{For: []string{"http.*"}, Name: "token", From: "two"}},
		Folders: []FolderBind{{For: []string{"git.push"}, Input: "repo", Path: "/b"}}}
	names := Profile{Environment: "production"}

	for _, c := range []struct {
		s    Stack
		id   bailey.CapabilityID
		pack string
		ok   bool
	}{
		{stackOf(), "git.push", "git", true},
		{stackOf(names), "git.push", "git", true},
		{stackOf(look), "git.log", "git", true},
		{stackOf(look), "git.push", "git", false},
		{stackOf(look), "git.log", "other", false}, // an id that another pack uses
		{stackOf(look, names), "git.push", "git", false},
		{stackOf(look, more), "http.get", "http", true},
		{stackOf(look, more), "git.push", "git", false},
	} {
		err := c.s.Admit(c.id, c.pack)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, bailey.Blocked) || bailey.HintOf(err) == "") {
			t.Errorf("%v: %s: %v", c.s.Names(), c.id, err)
		}
	}
	s := stackOf(look, more)
	if s.Name() != "a+b" || s.Environment() != "production" || stackOf(more, look).Environment() != "staging" {
		t.Errorf("%s in %s", s.Name(), s.Environment())
	}
	if a, b, c := s.Credential("http.get", "token"), s.Credential("git.log", "token"), s.Credential("git.log", "key"); a != "two" || b != "one" || c != "key" {
		t.Errorf("credentials %s, %s, %s", a, b, c)
	}
	if a, b, c := s.Folder("git.push", "repo"), s.Folder("git.log", "repo"), s.Folder("git.log", "to"); a != "/b" || b != "/a" || c != "" {
		t.Errorf("folders %s, %s, %s", a, b, c)
	}
}

// TestStackNetwork checks that if several profiles name the same endpoint, the last one determines its properties, and
// that any profile takes precedence over the settings.
func TestStackNetwork(t *testing.T) {
	at := func(private bool) []Reach {
		return []Reach{{Endpoint: bailey.Endpoint{Host: "a.example", Port: 443, Private: private}}}
	}
	place := bailey.Endpoint{Host: "a.example", Port: 443}
	settings := Network{Endpoints: at(false)}
	if !stackOf(Profile{Endpoints: at(true)}).Network(settings).With(place).Private {
		t.Error("settings outrank a profile")
	}
	if stackOf(Profile{Endpoints: at(true)}, Profile{Endpoints: at(false)}).Network(settings).With(place).Private {
		t.Error("an earlier profile outranks a later one")
	}
	if len(settings.Endpoints) != 1 {
		t.Error("settings were changed")
	}
}
