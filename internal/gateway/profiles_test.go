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
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/workspace"
)

type profileYard struct {
	home  localapi.Home
	noted []settings.InUse
	fails error
}

func (y *profileYard) write(t *testing.T, name, text string) {
	t.Helper()
	dir := filepath.Join(string(y.home), profilesDir)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (y *profileYard) open(last settings.InUse) *Profiles {
	note := func(_ context.Context, kind string, data any) error {
		if u, ok := data.(settings.InUse); ok && kind == apitype.ProfileEvent && y.fails == nil {
			y.noted = append(y.noted, u)
		}
		return y.fails
	}
	return OpenProfiles(y.home, workspace.NewWorkspaces(nil, nil), last, note, slog.New(slog.DiscardHandler))
}

// TestProfilesAreUsedDeliberately checks that a profile takes effect only when it is put to use, with the content that
// it has then. If the file has changed in between, the use is a conflict. If the use cannot be recorded, it has no
// effect.
func TestProfilesAreUsedDeliberately(t *testing.T) {
	y := &profileYard{home: localapi.Home(t.TempDir())}
	y.write(t, "look", "packs: [git]\n")
	p := y.open(settings.InUse{})
	if p.InForce().Admit("http.get", "http") != nil {
		t.Fatal("a profile that nobody used counts")
	}
	seen, err := p.Propose([]string{"look"})
	if err != nil {
		t.Fatal(err)
	}
	y.write(t, "look", "packs: [git, http]\n")
	if _, err := p.Use(t.Context(), []string{"look"}, seen.Digests(), settings.InUse{}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a file that changed meanwhile: %v", err)
	}
	y.write(t, "look", "packs: [git]\n")
	y.fails = errors.New("no space")
	if _, err := p.Use(t.Context(), []string{"look"}, seen.Digests(), settings.InUse{}); err == nil || len(p.InForce().Profiles) != 0 {
		t.Errorf("used without a record: %v", err)
	}
	y.fails = nil
	if _, err := p.Use(t.Context(), []string{"look"}, seen.Digests(), settings.InUse{Person: "me"}); err != nil || len(y.noted) != 1 || y.noted[0].Person != "me" {
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
	gone := settings.InUse{Profiles: []settings.UsedProfile{{Name: "look", Profile: settings.Profile{Packs: []string{"git"}}}}}
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
		if _, err := y.open(settings.InUse{}).Propose([]string{name}); !errors.Is(err, bailey.Invalid) {
			t.Errorf("profile %q: %v", name, err)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(string(y.home), profilesDir, "link.yaml"))
	if _, err := y.open(settings.InUse{}).Propose([]string{"link"}); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "not a regular file") {
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
	p := y.open(settings.InUse{})
	seen, err := p.Propose([]string{"app"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Use(t.Context(), []string{"app"}, seen.Digests(), settings.InUse{}); err != nil {
		t.Fatal(err)
	}
	if err := p.workspaces.Fit(inside); err != nil {
		t.Error(err)
	}
	if err := p.workspaces.Fit(outside); !errors.Is(err, bailey.Denied) {
		t.Errorf("outside: %v", err)
	}
	if _, err := p.Use(t.Context(), nil, nil, settings.InUse{}); err != nil {
		t.Fatal(err)
	}
	if err := p.workspaces.Fit(outside); err != nil {
		t.Errorf("a profile that is not in use bounds: %v", err)
	}
}
