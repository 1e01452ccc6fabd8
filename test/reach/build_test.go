//go:build linux

package reach

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gitsign"
	"bailey/internal/jail"
	"bailey/internal/ktest"
	"bailey/internal/workspace"
	"bailey/internal/wrap"
	"bailey/pack"
	"bailey/packs"
)

// site has projects that are built by the packs, and a home of Bailey with their caches.
type site struct {
	*world
	catalog    *pack.Catalog
	home, root string
	secrets    map[string]string // lent secrets, by the names of credentials
	between    func()            // runs between the check and the run of a call
	person     *pack.GitPerson   // whose commits are signed; nil: nothing is
	signer     gitsign.Signer
}

func newSite(t *testing.T, programs ...string) *site {
	t.Helper()
	s := &site{world: newWorld(t, programs...)}
	var err error
	// neither below the cage's own /tmp nor in its home
	if s.root, err = os.MkdirTemp("/var/tmp", "bailey-site-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exec.Command("chmod", "-R", "u+rwX", s.root).Run(); os.RemoveAll(s.root) })
	os.Chmod(s.root, 0o755)
	s.home = filepath.Join(s.root, "bailey")
	if err := os.Mkdir(s.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if s.world.cages, err = jail.New(jail.Config{Mask: []string{s.home}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.world.cages.Close() })
	s.catalog, err = pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// project creates a directory with these files, given as names and texts in turn.
func (s *site) project(name string, files ...string) string {
	s.t.Helper()
	dir := filepath.Join(s.root, name)
	os.MkdirAll(dir, 0o755)
	for i := 0; i+1 < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// call makes a call of a pack as the gate does, starting with the check of its input.
func (s *site) call(id bailey.CapabilityID, dir string, input map[string]any) ended {
	s.t.Helper()
	return s.callAt(id, "dir", dir, input)
}

// callAt is call with the directory in the input with this name, or without a directory if name is "".
func (s *site) callAt(id bailey.CapabilityID, name, dir string, input map[string]any) ended {
	s.t.Helper()
	m, err := s.catalog.Lookup(id)
	if err != nil {
		s.t.Fatal(err)
	}
	if input == nil {
		input = map[string]any{}
	}
	if name != "" {
		input[name] = dir
	}
	clean, err := m.Check(input, true)
	if err != nil {
		s.t.Fatal(err)
	}
	var opened []bailey.Place
	if name != "" {
		p, err := workspace.OpenPlace(dir, m.PathInputs()[0].Write)
		if err != nil {
			s.t.Fatal(err)
		}
		defer p.File.Close()
		p.Input = name
		opened = append(opened, p)
		if m.ResolvesRemote() != "" {
			clean, err = m.ResolveRemote(clean, func(below string) ([]byte, bool, error) {
				return new(workspace.Workspaces).Load(p, below, 1<<20)
			})
			if err != nil {
				return ended{err: err.Error() + "; " + bailey.HintOf(err), exit: bailey.Exit{Code: bailey.NeverRan}}
			}
		}
	}
	if s.between != nil {
		s.between()
	}
	args, err := m.Render(clean, map[string]string{name: dir})
	if err != nil {
		s.t.Fatal(err)
	}
	sign, args := s.signs(m, args, clean)
	job := m.Job(args, opened)
	m.SetUnlent(&job, clean)
	var all []bailey.Endpoint
	places, err := m.Egress(clean)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, place := range places {
		e, _ := bailey.ParseEndpoint(place)
		all = append(all, e)
	}
	if m.Loopback() {
		job.Network = &bailey.Network{}
	}
	inject, _ := lends(s.t, m, clean, s.secrets)
	s.outer = nil
	if sign != nil {
		m.SetPerson(&job, *s.person)
		s.outer = func(job *bailey.Job, way bailey.Way) bailey.Way {
			m.SetSigning(job, sign.Key())
			return gate.SigningWay{Way: way, Signing: sign}
		}
	}
	return s.runBy(wrap.NewWorks(s.cages, filepath.Join(s.home, "caches"), func(bailey.SessionID) bool { return false }), job, false, all, inject)
}

// signs returns what signs for a call, if its person wants it, and the arguments for it.
func (s *site) signs(m *pack.Capability, args []string, input map[string]any) (*gitsign.Signing, []string) {
	s.t.Helper()
	if s.person == nil {
		return nil, args
	}
	plan, err := m.PlanSigning(args, input, *s.person)
	if err != nil {
		s.t.Fatal(err)
	}
	if plan == nil {
		return nil, args
	}
	sign, err := s.signer.Prepare(s.t.Context(), *s.person, *plan)
	if err != nil {
		s.t.Fatal(err)
	}
	return sign, m.SignArgs(args, *plan, sign.Key())
}

// make runs the lines of a recipe.
func (s *site) make(project string, lines ...string) ended {
	s.t.Helper()
	text := "all:\n"
	for _, l := range lines {
		text += "\t-@" + strings.ReplaceAll(l, "$", "$$") + "\n"
	}
	if err := os.WriteFile(filepath.Join(project, "Makefile"), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return s.call("make.run", project, nil)
}

// TestAttackBuild checks that a build cannot affect anything outside its project.
func TestAttackBuild(t *testing.T) {
	ktest.Long(t)
	s := newSite(t, "make", "git", "python3")
	home, _ := os.UserHomeDir()
	secret := filepath.Join(s.root, "secret")
	os.WriteFile(secret, []byte("sesame-open"), 0o644)
	p := s.project("p", ".envrc", "export A=b\n", ".claude/settings.json", "{}", "x/.git/config", "[core]\n")
	said(t, "git", "init", "-q", p)
	config, err := os.ReadFile(filepath.Join(p, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	r := s.make(p,
		"echo it runs; cp /bin/true ./mine && ./mine && echo what it made runs too",
		"cat "+secret+" "+home+"/.ssh/* /etc/shadow",
		"ls "+s.home,
		"echo x > "+s.root+"/outside; echo x > /usr/x; echo x > /etc/x",
		"echo evil >> .git/config; echo evil > .git/hooks/pre-commit; echo evil >> .envrc; echo evil > .claude/settings.json; mv .git .git-old; rm -rf .claude; mv .envrc e",
		"ln -sf "+secret+" link; cat link",
		"python3 -c 'import socket; socket.create_connection((\"93.184.216.34\", 443), 3)' && echo GOT out",
		"python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(s.getsockname(), 3)' && echo a loopback",
		"python3 -c 'import socket; socket.socket(socket.AF_UNIX)' && echo GOT a socket",
		"setsid sh -c 'sleep 1000; echo late > late' & echo left a daemon",
		"git -c core.hooksPath=/dev/null config user.name evil",
		"cp /bin/true /tmp/t && /tmp/t && echo GOT /tmp",
		"echo PATH_add evil > .envrc.new; mkdir -p sub/.vscode; echo evil > sub/.vscode/tasks.json; mkdir -p new/.git/hooks; echo evil > new/.git/hooks/post-checkout; echo 'ref: refs/heads/x' > new/.git/HEAD",
	)
	for _, want := range []string{"it runs", "what it made runs too", "a loopback", "left a daemon", "sub/.vscode was created"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, bad := range []string{"GOT", "sesame", "root:"} {
		if strings.Contains(r.String(), bad) {
			t.Errorf("it got through: %q", bad)
		}
	}
	if now, _ := os.ReadFile(filepath.Join(p, ".git/config")); string(now) != string(config) {
		t.Errorf("the repository's configuration is %q", now)
	}
	for file, want := range map[string]string{".envrc": "export A=b\n", ".claude/settings.json": "{}", "x/.git/config": "[core]\n"} {
		if now, err := os.ReadFile(filepath.Join(p, file)); string(now) != want {
			t.Errorf("%s is %q, %v", file, now, err)
		}
	}
	for _, file := range []string{"late", ".git/hooks/pre-commit", "sub/.vscode", "new/.git/hooks", "../outside"} {
		if _, err := os.Lstat(filepath.Join(p, file)); err == nil {
			t.Errorf("%s is there", file)
		}
	}
	if t.Failed() {
		t.Log(r)
	}
}

// TestAttackCache checks that files that one project leaves in its HOME are visible neither to another project nor to
// other users, and that no link in it is followed.
func TestAttackCache(t *testing.T) {
	ktest.Long(t)
	s := newSite(t, "make")
	p, q := s.project("p"), s.project("q")
	r := s.make(p, "echo poison > $HOME/cache; ln -s "+s.root+" $HOME/away; rm -rf $HOME/.tmp; ln -s "+s.root+" $HOME/.tmp; chmod 0777 $HOME; echo made")
	if !strings.Contains(r.out, "made") {
		t.Fatal(r)
	}
	if r = s.make(q, "cat $HOME/cache; ls -a $HOME"); strings.Contains(r.out, "poison") || strings.Contains(r.out, "away") {
		t.Errorf("the cache of another project:\n%s", r)
	}
	r = s.make(p, "cat $HOME/cache; ls $HOME/away/secret; cat $HOME/away/bailey/*; touch $HOME/.tmp/x && echo a place for what is temporary")
	if !strings.Contains(r.out, "poison") || !strings.Contains(r.out, "a place for") {
		t.Errorf("its own cache: %s", r)
	}
	if _, err := os.Lstat(filepath.Join(s.root, "x")); err == nil {
		t.Error("a link was followed out of the cache")
	}
	homes, _ := filepath.Glob(filepath.Join(s.home, "caches", "make", "*", "home"))
	if len(homes) != 2 {
		t.Error(homes)
	}
	for _, h := range homes {
		if info, err := os.Stat(filepath.Dir(h)); err != nil || info.Mode().Perm() != 0o700 {
			t.Error(info.Mode(), err)
		}
	}
	// A link in place of a home, or above it, must be refused.
	os.RemoveAll(homes[0])
	os.Symlink(s.root, homes[0])
	m, _ := s.catalog.Lookup("make.run")
	for _, dir := range []string{p, q} {
		place, err := workspace.OpenPlace(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		place.Input = "dir"
		job := m.Job(nil, []bailey.Place{place})
		job.Network = &bailey.Network{}
		run, err := wrap.NewWorks(s.cages, filepath.Join(s.home, "caches"), func(bailey.SessionID) bool { return false }).Plan(t.Context(), job)
		refused := bailey.KindOf(err) == bailey.Denied
		if linked := wrap.State(filepath.Join(s.home, "caches", "make")).Home(dir) == homes[0]; linked != refused {
			t.Errorf("linked %v: %v", linked, err)
		}
		if run != nil {
			run.Close()
		}
		place.File.Close()
	}
}

// TestKilledWorks checks that if a run is killed, the files that appeared are put away at the next start, and the cache
// stays usable.
func TestKilledWorks(t *testing.T) {
	s := newSite(t, "make")
	p := s.project("p", "a/.envrc", "mine")
	caches := filepath.Join(s.home, "caches")
	s.make(p, "echo kept > $HOME/kept")
	state := wrap.State(filepath.Join(caches, "make"))
	before, err := wrap.Guarded(p)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := begin(state, p, before); err != nil { // by a process that ends without settling
		t.Fatal(out, err)
	}
	s.project("p", "b/.envrc", "theirs")
	var words []string
	// A process that another test is about to start has the descriptor, and so the lock, until it executes its program.
	for start := time.Now(); err == nil && len(words) == 0 && time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		words, err = wrap.Sweep(caches)
	}
	if err != nil || len(words) != 1 || !strings.Contains(words[0], "b/.envrc was created") {
		t.Errorf("%q %v", words, err)
	}
	if _, err := os.Lstat(filepath.Join(p, "a/.envrc")); err != nil {
		t.Error(err)
	}
	if r := s.make(p, "cat $HOME/kept"); !strings.Contains(r.out, "kept") {
		t.Error(r)
	}
}

// begin records a run and abandons it, as if the process were killed: its lock goes with its descriptor.
func begin(state wrap.State, project string, before wrap.Found) (string, error) {
	run, home, err := state.Begin("make.run", project, before, true)
	if err == nil {
		run.Abandon()
	}
	return home, err
}

// TestSweep checks that only the most recently used homes are kept.
func TestSweep(t *testing.T) {
	s := newSite(t, "make")
	caches := filepath.Join(s.home, "caches")
	for i := range 34 {
		dir := filepath.Join(caches, "go", strings.Repeat("a", i+1))
		if err := os.MkdirAll(filepath.Join(dir, "home", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		os.Chmod(filepath.Join(dir, "home", "x"), 0)
	}
	now, err := wrap.Sweep(caches)
	left, _ := filepath.Glob(filepath.Join(caches, "go", "a*"))
	if err != nil || len(now) != 0 || len(left) != 32 {
		t.Error(now, err, len(left))
	}
	if trash, _ := filepath.Glob(filepath.Join(caches, "go", "fresh", "*")); len(trash) != 0 {
		t.Error(trash)
	}
	if words, err := wrap.Sweep(filepath.Join(s.home, "none")); err != nil || len(words) > 0 {
		t.Error(words, err)
	}
}

// TestBuilds checks that a small project can be built and tested with the installed tools.
func TestBuilds(t *testing.T) {
	ktest.Long(t)
	s := newSite(t)
	for _, c := range []struct {
		program string
		files   []string
		calls   []bailey.CapabilityID
		input   map[string]any
		want    string
	}{
		{"npm", []string{"package.json", `{"name":"p","version":"1.0.0","scripts":{"test":"node t.js","hello":"node t.js"}}`, "t.js", `require("node:http").createServer().listen(0, "127.0.0.1", function () { console.log("served"); this.close() })`},
			[]bailey.CapabilityID{"npm.test", "npm.ls"}, nil, "served"},
		{"/usr/bin/cargo", []string{"Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", "src/lib.rs", "#[test]\nfn twice() { println!(\"ran\"); }\n"},
			[]bailey.CapabilityID{"cargo.test", "cargo.tree"}, nil, "test twice ... ok"},
		{"/usr/bin/cargo", []string{"Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", "src/main.rs", "fn main() { println!(\"sold\"); }\n"},
			[]bailey.CapabilityID{"cargo.run", "cargo.metadata", "cargo.clean"}, nil, "sold"},
		{"go", []string{"go.mod", "module p\n\ngo 1.20\n", "main.go", "package main\n\nfunc main() { println(\"sold\") }\n"},
			[]bailey.CapabilityID{"go.run", "go.vet", "go.mod-graph", "go.clean"}, map[string]any{"words": []any{"."}}, "sold"},
		{"/usr/bin/python3", []string{"t.py", "import unittest\nclass T(unittest.TestCase):\n    def test(self): print('ran here')\n"},
			[]bailey.CapabilityID{"pip.venv", "pip.python", "pip.list", "pip.freeze", "python.module"}, map[string]any{"module": "unittest", "arguments": []any{"t"}}, "ran here"},
	} {
		t.Run(filepath.Base(c.program), func(t *testing.T) {
			ktest.Require(t, c.program)
			p := s.project(filepath.Base(c.program)+c.want[:2], c.files...)
			var all string
			for _, id := range c.calls {
				m, err := s.catalog.Lookup(id)
				if err != nil {
					t.Fatal(err)
				}
				input := map[string]any{}
				for name, v := range c.input {
					if strings.Contains(string(m.InputSchema()), `"`+name+`"`) {
						input[name] = v
					}
				}
				r := s.call(id, p, input)
				if all += r.String(); r.exit.Code != 0 {
					t.Errorf("%s: exit %d\n%s", id, r.exit.Code, r)
				}
			}
			if !strings.Contains(all, c.want) {
				t.Errorf("%q is missing in\n%s", c.want, all)
			}
			if names := s.lookedUp(); slices.ContainsFunc(names, func(string) bool { return true }) {
				t.Errorf("%q were looked up", names)
			}
		})
	}
}
