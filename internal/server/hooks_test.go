package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/hook"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

const oneHook = `{"hooks": {"PreToolUse": [{"command": "~/check"}]}}`

// kiosk is a home with a hookbook, and the entries that it recorded.
type kiosk struct {
	*hookStore
	noted []apitype.AppliedHooks
	full  bool // the ledger accepts no entry
}

func openShelf(t *testing.T, home, userHome string, last apitype.AppliedHooks) (*kiosk, error) {
	t.Helper()
	s := &kiosk{}
	b, err := openHookStore(&hookStore{home: localapi.Home(home), userHome: userHome, log: slog.New(slog.DiscardHandler), note: func(_ context.Context, kind string, data any) error {
		if s.full {
			return errors.New("full")
		}
		s.noted = append(s.noted, data.(apitype.AppliedHooks))
		return nil
	}}, last)
	s.hookStore = b
	return s, err
}

func (s *kiosk) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.hooksPath(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload applies the file as `hooks reload` does. between runs while the operator reads.
func (s *kiosk) reload(t *testing.T, between func()) error {
	t.Helper()
	p, err := s.previewReload(t.Context(), localapi.None{}, gateway.Caller{})
	if err != nil {
		return err
	}
	if between != nil {
		between()
	}
	_, err = s.applyFile(t.Context(), apitype.HooksRequest{Digest: p.Digest, Base: p.Applied.Digest}, gateway.Caller{Operator: localapi.Env})
	return err
}

// TestHooksAreApplied checks that exactly the hooks that an operator saw and applied are in use, even if the file
// changes or the next gateway has another home directory.
func TestHooksAreApplied(t *testing.T) {
	home := t.TempDir()
	s, err := openShelf(t, home, "/home/me", apitype.AppliedHooks{})
	if err != nil || s.describeDrift() != "" || len(s.Config().Hooks) != 0 || s.Status() != nil {
		t.Fatalf("an empty home: %v, %q", err, s.describeDrift())
	}
	s.write(t, oneHook)
	if len(s.Config().Hooks) != 0 || s.describeDrift() == "" {
		t.Error("a file counts before it was applied")
	}
	if err := s.reload(t, func() { s.write(t, strings.Replace(oneHook, "check", "chock", 1)) }); !errors.Is(err, bailey.Conflict) || len(s.noted) != 0 {
		t.Errorf("another file than was shown was applied: %v", err)
	}
	s.write(t, oneHook)
	s.full = true
	if err := s.reload(t, nil); err == nil || len(s.Config().Hooks) != 0 {
		t.Errorf("hooks that no ledger has: %v", err)
	}
	s.full = false
	if err := s.reload(t, nil); err != nil || len(s.noted) != 1 || s.Config().Hooks[0].Argv[0] != "/home/me/check" || s.describeDrift() != "" {
		t.Fatalf("%v %+v %q", err, s.noted, s.describeDrift())
	}
	os.Remove(s.hooksPath())
	next, err := openShelf(t, home, "/home/eve", s.noted[0])
	if err != nil || next.Fault() != nil || len(next.Config().Hooks) != 1 || next.Config().Hooks[0].Argv[0] != "/home/me/check" || next.describeDrift() == "" {
		t.Fatalf("%v %v %+v", err, next.Fault(), next.Config())
	}
	if err := next.reload(t, nil); err != nil || len(next.Config().Hooks) != 0 || next.noted[0].Digest != "" || next.Status() != nil {
		t.Errorf("without a file there are hooks: %v %+v", err, next.Config())
	}
}

// TestHooksThatAreGone checks that if the applied hooks are missing or changed, every call is denied, with the cause
// and a hint.
func TestHooksThatAreGone(t *testing.T) {
	for name, spoil := range map[string]func(kept string) error{
		"missing": os.Remove,
		"changed": func(kept string) error { return os.WriteFile(kept, []byte(`{"hooks":{}}`), 0o600) },
		"a link":  func(kept string) error { os.Rename(kept, kept+"x"); return os.Symlink(kept+"x", kept) },
	} {
		home := t.TempDir()
		s, _ := openShelf(t, home, "/home/me", apitype.AppliedHooks{})
		s.write(t, oneHook)
		if err := s.reload(t, nil); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(home, apitype.KeptHooks, s.noted[0].Digest+".json")); err != nil {
			t.Fatal(err)
		}
		next, err := openShelf(t, home, "/home/me", s.noted[0])
		if err != nil || next.Fault() == nil || bailey.HintOf(next.Fault()) == "" {
			t.Fatalf("%s: %v, %v", name, err, next.Fault())
		}
		g := hookGate{hookStore: next.hookStore}
		if v, err := g.Pre(t.Context(), bailey.Call{}); err != nil || v.Effect != bailey.Deny || !strings.Contains(v.Rule.Reason, "hooks reload") {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		if !g.Holds("a.b") {
			t.Errorf("%s: output goes out unseen", name)
		}
		if err := next.reload(t, nil); err != nil || next.Fault() != nil || len(next.Config().Hooks) != 1 {
			t.Errorf("%s: applied anew: %v, %v", name, err, next.Fault())
		}
	}
}

// TestHooksFileAtStart checks that an unreadable or invalid hooks file is reported before anything runs.
func TestHooksFileAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"malformed":   {func(p string) error { return os.WriteFile(p, []byte("{\n \"hooks\": []}"), 0o600) }, "hooks.json:2:11: "},
		"empty":       {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "hooks.json:1:1: "},
		"too long":    {func(p string) error { return os.WriteFile(p, make([]byte, hook.MaxFrame+1), 0o600) }, "bytes allowed"},
		"a link":      {func(p string) error { return os.Symlink("/etc/passwd", p) }, "not a regular file"},
		"a directory": {func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
	} {
		home := t.TempDir()
		if err := c.put(filepath.Join(home, apitype.HooksName)); err != nil {
			t.Fatal(err)
		}
		if _, err := openShelf(t, home, "/home/me", apitype.AppliedHooks{}); err == nil || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHooksReadResult checks that a result from a hook must have all its keys and no others.
func TestHooksReadResult(t *testing.T) {
	if r, err := readResult([]byte(`{"stdout":"a","stderr":"","exitCode":3}`)); err != nil || r != (toolResult{"a", "", 3}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{`"a"`, `[]`, `{}`, `null`, `{"stdout":"a"}`, `{"stdout":"a","stderr":null,"exitCode":0}`, `{"stdout":1,"stderr":"","exitCode":0}`,
		`{"stdout":"a","stderr":"","exitCode":0,"more":1}`, `{"stdout":"a","stderr":"","exitCode":0.5}`, `{"stdout":"a","stderr":"","exitCode":"0"}`} {
		if r, err := readResult([]byte(text)); err == nil {
			t.Errorf("%s is %+v", text, r)
		}
	}
}
