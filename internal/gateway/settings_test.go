//go:build linux || darwin

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/workspace"
	"bailey/pack"
)

// book is a home with settings, and the event that was recorded last.
type book struct {
	*Settings
	dir   string // from yard
	rules *Redaction
	log   bytes.Buffer
	last  settings.Applied
	fail  error
}

func newBook(t *testing.T) *book {
	b := &book{dir: yard(t)}
	b.open(t)
	return b
}

// open simulates the start of a gateway, which knows the event that the ledger recorded last.
func (b *book) open(t *testing.T) {
	t.Helper()
	home := filepath.Join(b.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	w := workspace.NewWorkspaces([]string{b.dir + "/secret", home}, nil)
	var err error
	b.rules = NewRedaction()
	b.Settings, err = OpenSettings(localapi.Home(home), w, b.rules, b.last, func(_ context.Context, kind string, data any) error {
		if b.fail == nil && kind == ApplyEvent {
			b.last = data.(settings.Applied)
		}
		return b.fail
	}, slog.New(slog.NewTextHandler(&b.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
}

func (b *book) put(t *testing.T, text string) (settings.Applied, error) {
	t.Helper()
	st, err := b.State("")
	if err != nil {
		t.Fatal(err)
	}
	return b.Apply(t.Context(), st.Digest, []byte(text), settings.Applied{Operator: localapi.Env})
}

// reach returns the error of a call in the directory from that opens path.
func (b *book) reach(from, path string) error {
	call := bailey.Call{Dir: filepath.Join(b.dir, from), Session: bailey.Session{ID: bailey.NewSessionID()}}
	p, err := b.workspaces.Open(call, pack.PathInput{Name: "repo"}, path)
	if err == nil {
		p.File.Close()
	}
	return err
}

func TestApplyBoundsEveryPath(t *testing.T) {
	b := newBook(t)
	if err := b.reach("outside", "."); err != nil {
		t.Errorf("while a home names no workspace the client's directory is it: %v", err)
	}
	got, err := b.put(t, "workspaces:\n  - "+b.dir+"/project/sub\n")
	if err != nil || got.Operator != localapi.Env || !slices.Equal(got.Workspaces, []string{b.dir + "/project/sub"}) || got.Digest == "" || b.last.Digest != got.Digest {
		t.Fatalf("%+v, %v, noted %+v", got, err, b.last)
	}
	if info, err := os.Stat(b.filePath()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, c := range []struct {
		from, path string
		ok         bool
	}{
		{"project/sub", ".", true}, {"outside", "../project/sub", true}, {"/", b.dir + "/project/sub", true}, {"project", "in", true},
		{"outside", ".", false}, {"project", ".", false}, {"project", "file", false}, {"project/sub", "..", false},
	} {
		if err := b.reach(c.from, c.path); (err == nil) != c.ok || err != nil && !errors.Is(err, bailey.Denied) {
			t.Errorf("%s from %s: %v", c.path, c.from, err)
		}
	}
	if _, err := b.put(t, "workspaces: ["+b.dir+"/project/sub, "+b.dir+"/outside]\n"); err != nil {
		t.Fatal(err)
	}
	if err := b.reach("outside", "."); err != nil {
		t.Errorf("from the next call on: %v", err)
	}
	b.open(t)
	if err := b.reach("project", "."); !errors.Is(err, bailey.Denied) || b.log.Len() > 0 {
		t.Errorf("a new gateway uses what was applied: %v, %s", err, b.log.String())
	}
}

func TestUnfitWorkspacesAreNotApplied(t *testing.T) {
	b := newBook(t)
	for _, dir := range []string{"/", "/usr", "/etc", "/proc", b.dir, b.dir + "/secret", b.dir + "/home", b.dir + "/none", b.dir + "/toproject", b.dir + "/project/file"} {
		if _, err := b.put(t, "workspaces: ["+dir+"]\n"); err == nil {
			t.Errorf("%s became a workspace", dir)
		}
		if _, err := b.State(dir); err == nil && dir != b.dir+"/toproject" {
			t.Errorf("%s looks fit", dir)
		}
	}
	if st, _ := b.State(b.dir + "/toproject"); st.Dir != b.dir+"/project" {
		t.Errorf("%+v: a workspace is canonical", st)
	}
	if _, err := os.Lstat(b.filePath()); err == nil || b.last.Digest != "" {
		t.Error("something was written or noted")
	}
}

// TestHandMadeSettingsAreNotUsed checks that settings other than those that the ledger recorded last are not used. No
// call gets a workspace until an operator applies them.
func TestHandMadeSettingsAreNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"a space more":   func(p string) error { return os.WriteFile(p, []byte(" "), 0o600) },
		"removed":        os.Remove,
		"a link":         func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p)) },
		"a pipe":         func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"a directory":    func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"huge":           func(p string) error { return os.Truncate(p, 1<<30) },
		"another's list": func(p string) error { return os.WriteFile(p, []byte("workspaces: [/]\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			if _, err := b.put(t, "workspaces: ["+b.dir+"/project]\n"); err != nil {
				t.Fatal(err)
			}
			if err := spoil(b.filePath()); err != nil {
				t.Fatal(err)
			}
			if err := b.reach("project", "."); err != nil {
				t.Errorf("a living gateway keeps what was applied: %v", err)
			}
			b.open(t)
			if err := b.reach("project", "."); !errors.Is(err, bailey.Denied) || !strings.Contains(bailey.HintOf(err), "init --apply") {
				t.Errorf("a call got a workspace, or no cure: %v", err)
			}
			if !strings.Contains(b.log.String(), "settings") {
				t.Errorf("the log says nothing: %q", b.log.String())
			}
			if st, err := b.State(""); err != nil || !st.Changed || st.Refusal == "" {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

func TestApplyOfAHandMadeFile(t *testing.T) {
	b := newBook(t)
	os.WriteFile(b.filePath(), []byte("# mine\nworkspaces: ["+b.dir+"/project]\n"), 0o600)
	b.open(t)
	if err := b.reach("project", "."); !errors.Is(err, bailey.Denied) {
		t.Errorf("a file that nobody applied is used: %v", err)
	}
	st, _ := b.State("")
	if _, err := b.Apply(t.Context(), "00", nil, settings.Applied{}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("another file than was shown: %v", err)
	}
	if _, err := b.Apply(t.Context(), st.Digest, nil, settings.Applied{}); err != nil {
		t.Fatal(err)
	}
	if err := b.reach("project", "sub"); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(b.filePath()); !strings.HasPrefix(string(text), "# mine") {
		t.Errorf("applying wrote %q", text)
	}
}

// TestUnrecordedSettingsAreNotUsed checks that settings do not change if the event cannot be recorded.
func TestUnrecordedSettingsAreNotUsed(t *testing.T) {
	b := newBook(t)
	b.fail = errors.New("the disk is full")
	if _, err := b.put(t, "workspaces: ["+b.dir+"/project]\n"); !errors.Is(err, b.fail) {
		t.Fatal(err)
	}
	if err := b.reach("outside", "."); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(string(b.home)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWorkspaceUnfitByNow(t *testing.T) {
	b := newBook(t)
	b.last = settings.Applied{Contents: settings.Contents{Workspaces: []string{b.dir + "/secret"}}, Digest: apitype.FileDigest([]byte("x"))}
	os.WriteFile(b.filePath(), []byte("x"), 0o644)
	b.open(t)
	if err := b.reach("project", "."); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "masked") {
		t.Error(err)
	}
	if !strings.Contains(b.log.String(), "other users can access the settings") {
		t.Errorf("mode 0644 goes unsaid: %s", b.log.String())
	}
}

func TestAppliesComeOneByOne(t *testing.T) {
	b := newBook(t)
	var all sync.WaitGroup
	for i := range 8 {
		dir := fmt.Sprintf("%s/project/%d", b.dir, i)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for {
				st, err := b.State(dir)
				var old []byte
				if st.Digest != "" {
					old = []byte(st.Text)
				}
				text, err2 := settings.AddWorkspace(old, dir)
				if err = errors.Join(err, err2); err == nil {
					_, err = b.Apply(context.Background(), st.Digest, text, settings.Applied{})
				}
				if !errors.Is(err, bailey.Conflict) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	all.Wait()
	if len(b.last.Workspaces) != 8 {
		t.Errorf("%v: one apply lost another's", b.last.Workspaces)
	}
}

func TestActsWantAnOperator(t *testing.T) {
	var acted atomic.Int64
	change := localapi.NewCommand[localapi.None, string]("change")
	_, client, _ := start(t, func(c *Config) {
		c.Handlers = []Handler{Handle(change, func(context.Context, localapi.None, Caller) (string, error) { acted.Add(1); return "done", nil })}
	})
	for _, op := range []localapi.Operator{"", "agent", "Terminal"} {
		if _, err := change.Do(t.Context(), client, op, localapi.None{}); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" || acted.Load() > 0 {
			t.Errorf("operator %q: %v", op, err)
		}
	}
	for _, op := range []localapi.Operator{localapi.Terminal, localapi.Env} {
		if out, err := change.Do(t.Context(), client, op, localapi.None{}); err != nil || out != "done" {
			t.Errorf("operator %q: %q, %v", op, out, err)
		}
	}
}
