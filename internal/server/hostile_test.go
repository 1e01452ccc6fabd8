package server

import (
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/packs/hostile"
)

var looks = []bailey.CapabilityID{"git.status", "git.log", "git.diff", "git.show", "git.branch-list"}

// TestHostileRepositories runs read-only git capabilities on every hostile repository through the complete gate. No
// program of the repository may run, and no data from outside may appear. An attack that only the cage stops must work
// without it.
func TestHostileRepositories(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "git", "sh")
	s := spineForTest(t)
	for _, r := range hostile.Repositories(t, t.TempDir()) {
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			for _, id := range looks {
				r.Arm()
				res := s.Gate.Do(t.Context(), look1(id, r.Dir))
				out := string(res.Stdout) + string(res.Stderr)
				if took(r, out) {
					t.Errorf("%s let it through the cage:\n%s", id, out)
				}
				if res.Receipt == "" {
					t.Errorf("%s left no receipt: %v", id, res.Err)
				}
			}
			if r.Wall == hostile.Cage && !uncaged(t, s, r) {
				t.Error("it does nothing without the cage either: the options stop it by now, say so in its table")
			}
		})
	}
}

func look1(id bailey.CapabilityID, repo string) bailey.Call {
	return bailey.Call{Capability: id, Input: map[string]any{"repo": "."}, Door: "test", Dir: repo,
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.NewSessionID()}}
}

// took reports whether an attack had its effect.
func took(r hostile.Repository, out string) bool {
	_, err := os.Lstat(r.Marker)
	return err == nil || strings.Contains(out, hostile.Ran) || r.Leak != "" && strings.Contains(out, r.Leak)
}

// uncaged runs the rendered commands without a cage, and reports whether the attack had its effect.
func uncaged(t *testing.T, s *Server, r hostile.Repository) bool {
	t.Helper()
	for _, id := range looks {
		m, err := s.Catalog.Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		args, err := m.Render(map[string]any{"repo": "."}, map[string]string{"repo": r.Dir})
		if err != nil {
			t.Fatal(err)
		}
		job := m.Job(args, nil)
		r.Arm()
		cmd := exec.Command(job.Command, job.Args...)
		cmd.Dir = r.Dir
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, job.Env...)
		out, _ := cmd.CombinedOutput()
		if took(r, string(out)) {
			return true
		}
	}
	return false
}

// spineForTest builds a gate with its own home, in this process.
func spineForTest(t testing.TB) *Server { return SpineOf(t, &Server{}) }

// SpineOf builds a gate from the parts that s already has.
func SpineOf(t testing.TB, s *Server) *Server {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Log, s.home = slog.New(slog.NewTextHandler(io.Discard, nil)), localapi.Home(home)
	var err error
	if s.workspaces, err = s.NewGate(s.home, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
