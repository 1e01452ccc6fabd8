//go:build linux || darwin

package workspace

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/pack"
)

// yard returns a directory tree for tests of paths: project/, project/sub/, outside/, secret/ (masked).
func yard(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs linux: openat2")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"project/sub", "outside", "secret"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"project/in": "sub", "project/abs": dir + "/project/sub", "project/out": "../outside", "project/loop": "loop",
		"project/key": dir + "/secret", "toproject": "project",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, "project/file"), []byte("x"), 0o644)
	if err := syscall.Mkfifo(filepath.Join(dir, "project/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPathsStayInTheWorkspace(t *testing.T) {
	dir := yard(t)
	w := NewWorkspaces([]string{dir + "/secret"}, []string{dir + "/home"})
	for _, c := range []struct {
		name, path, want string // want: the real path below dir
		kind             bailey.Kind
	}{
		{name: "itself", path: ".", want: "project"},
		{name: "below", path: "sub", want: "project/sub"},
		{name: "absolute", path: dir + "/project/sub", want: "project/sub"},
		{name: "link inside", path: "in", want: "project/sub"},
		{name: "absolute link inside", path: "abs", want: "project/sub"},
		{name: "there and back", path: "../project/sub", want: "project/sub"},
		{name: "a link beside the workspace into it", path: "../toproject/sub", want: "project/sub"},
		{name: "parent", path: "..", kind: bailey.Denied},
		{name: "outside", path: dir + "/outside", kind: bailey.Denied},
		{name: "link outside", path: "out", kind: bailey.Denied},
		{name: "link to a secret", path: "key", kind: bailey.Denied},
		{name: "missing outside", path: dir + "/outside/none", kind: bailey.Denied},
		{name: "root", path: "/", kind: bailey.Denied},
		{name: "prefix of a name", path: dir + "/project2", kind: bailey.Denied},
		{name: "loop", path: "loop", kind: bailey.Invalid},
		{name: "missing", path: "none", kind: bailey.Invalid},
		{name: "file as directory", path: "file", kind: bailey.Invalid},
		{name: "fifo", path: "fifo", kind: bailey.Invalid},
		{name: "magic link", path: "/proc/self/root", kind: bailey.Denied},
		{name: "very long", path: strings.Repeat("x/", 5000), kind: bailey.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := bailey.Call{Dir: dir + "/project", Session: bailey.Session{ID: bailey.SessionID(c.name)}}
			p, err := w.Open(call, pack.PathInput{Name: "repo", Dir: true}, c.path)
			if c.want == "" {
				if !errors.Is(err, c.kind) || bailey.KindOf(err) != c.kind {
					t.Fatalf("err %v, want %s", err, c.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.File.Close()
			if p.Path != filepath.Join(dir, c.want) || p.Write {
				t.Errorf("%+v, want %s", p, c.want)
			}
		})
	}
}

// TestWorkspaceIsFixedAtTheFirstCall checks that a later call from another directory does not widen the workspace of
// its session.
func TestWorkspaceIsFixedAtTheFirstCall(t *testing.T) {
	dir := yard(t)
	w := NewWorkspaces(nil, nil)
	in := pack.PathInput{Name: "repo", Dir: true}
	s := bailey.Session{ID: "s"}
	p, err := w.Open(bailey.Call{Dir: dir + "/project", Session: s}, in, ".")
	if err != nil {
		t.Fatal(err)
	}
	p.File.Close()
	if _, err := w.Open(bailey.Call{Dir: dir + "/outside", Session: s}, in, "."); !errors.Is(err, bailey.Denied) {
		t.Errorf("a second directory: %v", err)
	}
	w.End("s")
	if p, err = w.Open(bailey.Call{Dir: dir + "/outside", Session: s}, in, "."); err != nil {
		t.Errorf("a new session: %v", err)
	}
	p.File.Close()
}

func TestWhatIsNoWorkspace(t *testing.T) {
	dir := yard(t)
	w := NewWorkspaces([]string{dir + "/outside/deep/.ssh", dir + "/secret"}, []string{dir + "/project"})
	for _, at := range []string{"/", "/usr", "/usr/lib", "/etc", "/proc", "/proc/self", "/sys", "/dev", dir + "/project", dir + "/outside",
		dir + "/secret", dir, dir + "/none"} {
		call := bailey.Call{Dir: at, Session: bailey.Session{ID: bailey.SessionID(at)}}
		if p, err := w.Open(call, pack.PathInput{Name: "repo"}, "."); err == nil {
			t.Errorf("%s became the workspace (%s)", at, p.Path)
			p.File.Close()
		} else if !errors.Is(err, bailey.Denied) && !errors.Is(err, bailey.Invalid) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestMasks(t *testing.T) {
	t.Setenv("HOME", "/nowhere/me")
	t.Setenv("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus-x/bus,guid=1")
	t.Setenv("GNUPGHOME", "/elsewhere/gpg")
	t.Setenv("GPG_AGENT_INFO", "/tmp/gpg-x/S.gpg-agent:12:1")
	masks := strings.Join(Masks("/nowhere/me/.bailey", Homes()), "\n")
	for _, want := range []string{"/nowhere/me/.bailey", "/nowhere/me/.ssh", "/nowhere/me/.aws", "/nowhere/me/.gnupg", "/nowhere/me/.kube",
		"/nowhere/me/.config/gcloud", "/nowhere/me/.docker", "/tmp/ssh-x/agent.1", "/run/bus-x/bus", "/tmp/gpg-x/S.gpg-agent", "/elsewhere/gpg"} {
		if !strings.Contains(masks+"\n", want+"\n") {
			t.Errorf("%s is not masked", want)
		}
	}
	if _, err := user.Current(); err == nil && len(Homes()) < 2 {
		t.Errorf("homes %v: the account's own home counts beside $HOME", Homes())
	}
}

// FuzzWithin checks that a path is within a directory only if it is that directory or has it as its prefix up to a
// slash.
func FuzzWithin(f *testing.F) {
	f.Add("/a", "/a/b")
	f.Add("/a", "/ab")
	f.Add("/", "/x")
	f.Fuzz(func(t *testing.T, dir, path string) {
		dir, path = filepath.Clean("/"+dir), filepath.Clean("/"+path)
		rel, err := filepath.Rel(dir, path)
		want := err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
		if got := Within(dir, path); got != want {
			t.Errorf("within(%q, %q) = %v, filepath.Rel says %q", dir, path, got, rel)
		}
	})
}

// TestOpenTheWorkspace checks that a tool that names no path gets the caller's workspace, read-only, even if the caller
// gives a path. If there are several workspaces, it gets the one that the caller is in.
func TestOpenTheWorkspace(t *testing.T) {
	top := Canonical(t.TempDir())
	a, b := filepath.Join(top, "a"), filepath.Join(top, "b")
	sub := filepath.Join(a, "sub")
	for _, d := range []string{sub, b} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	call := func(dir string) bailey.Call {
		return bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	}
	for _, c := range []struct {
		name       string
		named      []string
		dir, want  string
		wall, path string
	}{
		{"its own directory", nil, sub, sub, "", ""},
		{"the one there is", []string{a}, top, a, "", ""},
		{"the one it is in", []string{b, a}, sub, a, "", ""},
		{"a path says nothing", []string{a}, sub, a, "", b},
		{"the narrowest", []string{a, sub, b}, sub, sub, "", ""},
		{"one that is named twice", []string{a, a}, top, a, "", ""},
		{"none of two", []string{a, b}, top, "", "", ""},
		{"the project of a wall", []string{a, b}, b, sub, sub, ""},
		{"a home", nil, top, "", "", ""},
	} {
		w := NewWorkspaces(nil, []string{top})
		w.Use(c.named, nil)
		in := call(c.dir)
		if c.wall != "" {
			w.Fix(in.Session.ID, c.wall)
		}
		p, err := w.Open(in, pack.PathInput{Dir: true}, c.path)
		switch {
		case c.want == "" && (bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" || strings.Contains(err.Error(), "input /")):
			t.Errorf("%s: %q, %v", c.name, p.Path, err)
		case c.want != "" && (err != nil || p.Path != c.want || p.Write || p.Input != ""):
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
		if err == nil {
			p.File.Close()
		}
	}
}

func TestFit(t *testing.T) {
	project := t.TempDir()
	w := NewWorkspaces([]string{filepath.Join(project, "secret")}, []string{"/home/somebody"})
	for dir, fit := range map[string]bool{"/": false, "/etc": false, project: false, filepath.Join(project, "none"): false, t.TempDir(): true} {
		if err := w.Fit(dir); (err == nil) != fit {
			t.Errorf("%s: %v, want fit %v", dir, err, fit)
		}
	}
	if len(w.roots) != 0 {
		t.Errorf("asking fixed a workspace: %v", w.roots)
	}
}

// TestOwnDirectory checks that a person's call from outside of the named workspaces may read below its own directory, and
// write nothing there. No other front end, agent with a token, step of a workflow or agent jail has that directory.
func TestOwnDirectory(t *testing.T) {
	home := Canonical(t.TempDir())
	one, other, third := filepath.Join(home, "one"), filepath.Join(home, "other"), filepath.Join(home, "third")
	for _, dir := range []string{one, other, third} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := NewWorkspaces([]string{filepath.Join(third, "keys")}, []string{home})
	w.Use([]string{one}, nil)
	for name, c := range map[string]struct {
		change func(*bailey.Call)
		in     pack.PathInput
		path   string
		opens  bool
	}{
		"reads":           {path: other, opens: true},
		"reads the named": {path: one, opens: true},
		"works there":     {in: pack.PathInput{Name: "", Dir: true}, path: ".", opens: true},
		"writes":          {in: pack.PathInput{Name: "dir", Write: true}, path: other},
		"creates":         {in: pack.PathInput{Name: "dir", Write: true, New: true}, path: filepath.Join(other, "new")},
		"writes a named":  {in: pack.PathInput{Name: "dir", Write: true}, path: one, opens: true},
		"elsewhere":       {path: third},
		"above":           {path: home},
		"by MCP":          {change: func(c *bailey.Call) { c.Door = "mcp" }, path: other},
		"by a hook":       {change: func(c *bailey.Call) { c.Door = "hook" }, path: other},
		"by a shim":       {change: func(c *bailey.Call) { c.Door = "shim" }, path: other},
		"with a token":    {change: func(c *bailey.Call) { c.Principal.Token = "t-1" }, path: other},
		"in a workflow":   {change: func(c *bailey.Call) { c.Within = &bailey.Within{} }, path: other},
		"from home":       {change: func(c *bailey.Call) { c.Dir = home }, path: other},
		"in its jail":     {change: func(c *bailey.Call) { w.Fix(c.Session.ID, one) }, path: other},
	} {
		call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: other, Door: "cli"}
		if c.change != nil {
			c.change(&call)
		}
		if c.in == (pack.PathInput{}) {
			c.in = pack.PathInput{Name: "dir", Dir: true}
		}
		p, err := w.Open(call, c.in, c.path)
		if (err == nil) != c.opens || err != nil && bailey.KindOf(err) != bailey.Denied {
			t.Errorf("%s: %q, %v", name, p.Path, err)
		}
		if err == nil {
			p.File.Close()
		}
	}
}

// TestWallHasOneWorkspace checks that an agent in its jail has only its own project, even if the home names other
// workspaces.
func TestWallHasOneWorkspace(t *testing.T) {
	home := Canonical(t.TempDir())
	one, two, sub := filepath.Join(home, "one"), filepath.Join(home, "two"), filepath.Join(home, "one", "sub")
	for _, dir := range []string{one, two, sub} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := NewWorkspaces(nil, nil)
	w.Use([]string{one, two}, nil)
	w.Fix("s-wall", sub)
	open := func(id bailey.SessionID, dir, path string) error {
		p, err := w.Open(bailey.Call{Session: bailey.Session{ID: id}, Dir: dir}, pack.PathInput{Name: "path", Write: true}, path)
		p.File.Close()
		return err
	}
	for path, fits := range map[string]bool{sub: true, ".": true, one: false, two: false, "../../two": false} {
		if err := open("s-wall", sub, path); (err == nil) != fits {
			t.Errorf("%s: %v", path, err)
		}
		if err := open("s-other", sub, path); err != nil {
			t.Errorf("%s, of a session outside: %v", path, err)
		}
	}
	w.Use([]string{two}, nil)
	if open("s-wall", sub, ".") == nil {
		t.Error("a project that is no workspace any more is one")
	}
	w.End("s-wall")
	if err := open("s-wall", two, "."); err != nil {
		t.Error(err)
	}
}

// TestOpenPlace checks that an opened place stays the same file, even if another file gets its name, and that its path
// is the real path.
func TestOpenPlace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, link), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for path, want := range map[string]string{real: real, link: real, "real": real, "./link/../link": real, "file": filepath.Join(dir, "file"), ".": dir} {
		p, err := OpenPlace(path, path == link)
		if err != nil {
			t.Fatal(path, err)
		}
		defer p.File.Close()
		if p.Path != want || p.Write != (path == link) || p.Input != "" {
			t.Errorf("%s is %+v, want %s", path, p, want)
		}
		before, err := p.File.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if want != real {
			continue
		}
		if err := errors.Join(os.Rename(real, real+".old"), os.Mkdir(real, 0o755)); err != nil {
			t.Fatal(err)
		}
		after, err := p.File.Stat()
		if now, nerr := os.Stat(real); err != nil || nerr != nil || !os.SameFile(before, after) || os.SameFile(after, now) {
			t.Errorf("%s followed its name: %v %v", path, err, nerr)
		}
		if err := errors.Join(os.Remove(real), os.Rename(real+".old", real)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"nowhere", "real/nowhere", "file/x", "/proc/self/root", "/proc/self/fd/0", "a\x00b"} {
		if p, err := OpenPlace(path, false); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q: %+v, %v", path, p, err)
		}
	}
}
