package gateway

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/localapi"
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
	if p, err := ParseProfile("p", nil); err != nil || p.says() {
		t.Errorf("an empty profile says %+v, %v", p, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":       {"pack: [git]\n", `profiles/prod.yaml:1:1: "pack" is no part of a profile`},
		"key twice":         {"packs: [git]\npacks: [git]\n", "already defined"},
		"no pack":           {"packs: []\n", "packs names at least one"},
		"pack twice":        {"packs: [git, git]\n", "each once"},
		"pattern as pack":   {"packs: [\"*\"]\n", "lower case letters"},
		"strange pattern":   {"capabilities: [\"git.[a-z]\"]\n", "lower case letters"},
		"relative folder":   {"folders: [{input: repo, path: srv}]\n", "absolute"},
		"unclean folder":    {"folders: [{input: repo, path: /srv/../etc}]\n", "clean"},
		"secret half":       {"secrets: [{name: token}]\n", "name, as the manifest wants it, and from"},
		"relative place":    {"workspaces: [srv]\n", "absolute, clean path"},
		"metadata":          {"endpoints: [{to: \"169.254.169.254:80\", private: true}]\n", "profiles/prod.yaml:1:"},
		"two documents":     {"packs: [git]\n---\npacks: [http]\n", "2 documents"},
		"anchors":           {"packs: &a [git]\n", "anchors"},
		"a list":            {"- git\n", "wants keys and values"},
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
		if s.Admit("t.x", "t") != nil && !p.says() {
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

type profileYard struct {
	home  localapi.Home
	noted []InUse
	fails error
}

func (y *profileYard) write(t *testing.T, name, text string) {
	t.Helper()
	dir := filepath.Join(string(y.home), ProfilesDir)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (y *profileYard) open(last InUse) *Profiles {
	note := func(_ context.Context, kind string, data any) error {
		if u, ok := data.(InUse); ok && kind == ProfileEvent && y.fails == nil {
			y.noted = append(y.noted, u)
		}
		return y.fails
	}
	return OpenProfiles(y.home, NewWorkspaces(nil, nil), last, note, slog.New(slog.DiscardHandler))
}

// TestProfilesAreUsedDeliberately checks that a profile takes effect only when it is put to use, with the content that
// it has then. If the file has changed in between, the use is a conflict. If the use cannot be recorded, it has no
// effect.
func TestProfilesAreUsedDeliberately(t *testing.T) {
	y := &profileYard{home: localapi.Home(t.TempDir())}
	y.write(t, "look", "packs: [git]\n")
	p := y.open(InUse{})
	if p.InForce().Admit("http.get", "http") != nil {
		t.Fatal("a profile that nobody used counts")
	}
	seen, err := p.Propose([]string{"look"})
	if err != nil {
		t.Fatal(err)
	}
	y.write(t, "look", "packs: [git, http]\n")
	if _, err := p.Use(t.Context(), []string{"look"}, seen.digests(), InUse{}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a file that changed meanwhile: %v", err)
	}
	y.write(t, "look", "packs: [git]\n")
	y.fails = errors.New("no space")
	if _, err := p.Use(t.Context(), []string{"look"}, seen.digests(), InUse{}); err == nil || len(p.InForce().Profiles) != 0 {
		t.Errorf("used without a record: %v", err)
	}
	y.fails = nil
	if _, err := p.Use(t.Context(), []string{"look"}, seen.digests(), InUse{Person: "me"}); err != nil || len(y.noted) != 1 || y.noted[0].Person != "me" {
		t.Fatalf("%v, %+v", err, y.noted)
	}
	y.write(t, "look", "packs: [git, http]\n")
	again := y.open(y.noted[0])
	for name, p := range map[string]*Profiles{"running": p, "started again": again} {
		if p.InForce().Admit("http.get", "http") == nil || p.InForce().Admit("git.log", "git") != nil {
			t.Errorf("%s: a changed file counts", name)
		}
		if states, err := p.States(); err != nil || len(states) != 1 || !states[0].Changed || !states[0].InUse {
			t.Errorf("%s: %+v, %v", name, states, err)
		}
	}
}

// TestMissingProfileFailsClosed checks that no capability can be called if the file of a profile in use is missing, or
// a workspace that the profile names.
func TestMissingProfileFailsClosed(t *testing.T) {
	y := &profileYard{home: localapi.Home(t.TempDir())}
	gone := InUse{Profiles: []UsedProfile{{Name: "look", Profile: Profile{Packs: []string{"git"}}}}}
	s := y.open(gone).InForce()
	if err := s.Admit("git.log", "git"); !errors.Is(err, bailey.Blocked) || s.Fault() == nil || !strings.Contains(bailey.HintOf(err), "bailey profile use look") {
		t.Errorf("%v", err)
	}
	y.write(t, "look", "packs: [git]\n")
	if err := y.open(gone).InForce().Admit("git.log", "git"); err != nil {
		t.Error(err)
	}
	gone.Profiles[0].Workspaces = []string{filepath.Join(t.TempDir(), "none")}
	if y.open(gone).InForce().Fault() == nil {
		t.Error("a workspace that is gone does not matter")
	}
	for _, name := range []string{"../look", "", "Look", "a/b", strings.Repeat("a", 40), "-"} {
		if _, err := y.open(InUse{}).Propose([]string{name}); !errors.Is(err, bailey.Invalid) {
			t.Errorf("profile %q: %v", name, err)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(string(y.home), ProfilesDir, "link.yaml"))
	if _, err := y.open(InUse{}).Propose([]string{"link"}); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a link: %v", err)
	}
}

// TestProfileWorkspaces checks that calls must stay in the workspaces of the profile as well as in those of the
// settings.
func TestProfileWorkspaces(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inside, outside := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := errors.Join(os.Mkdir(inside, 0o755), os.Mkdir(outside, 0o755)); err != nil {
		t.Fatal(err)
	}
	y := &profileYard{home: localapi.Home(filepath.Join(dir, "home"))}
	y.write(t, "app", "workspaces: ["+inside+"]\n")
	p := y.open(InUse{})
	seen, err := p.Propose([]string{"app"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Use(t.Context(), []string{"app"}, seen.digests(), InUse{}); err != nil {
		t.Fatal(err)
	}
	if err := p.workspaces.Fit(inside); err != nil {
		t.Error(err)
	}
	if err := p.workspaces.Fit(outside); !errors.Is(err, bailey.Denied) {
		t.Errorf("outside: %v", err)
	}
	if _, err := p.Use(t.Context(), nil, nil, InUse{}); err != nil {
		t.Fatal(err)
	}
	if err := p.workspaces.Fit(outside); err != nil {
		t.Errorf("a profile that is not in use bounds: %v", err)
	}
}
