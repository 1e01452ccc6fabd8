//go:build linux

package jail

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// TestWallRefuses checks that a Wall is refused if it would cover the cage's own files, show a mask, or protect less
// than it claims.
func TestWallRefuses(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	secret := filepath.Join(y.outside, "secret")
	if err := os.MkdirAll(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	y.mask = []string{secret}
	tree := func(path, at string) func(*bailey.Job) {
		return func(job *bailey.Job) { job.Wall.Trees = append(job.Wall.Trees, bailey.Tree{Path: path, At: at}) }
	}
	keep := func(path string) func(*bailey.Job) {
		return func(job *bailey.Job) { job.Wall.Keep = append(job.Wall.Keep, path) }
	}
	for link, target := range map[string]string{".idea": "src", ".git/way": "hooks"} {
		if err := os.Symlink(target, y.in(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(y.in("src/main.go"), y.in("main.go")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(y.in(".vscode"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(y.in("src/main.go"), y.in(".vscode/tasks.json")); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*bailey.Job)
		say    string
	}{
		"a tree over all":              {tree("/", ""), "/"},
		"a tree over the cage's users": {tree("/etc", ""), "own /etc/group"},
		"a tree over the cage's home":  {tree("/home", ""), "own /home/bailey"},
		"a tree over its /tmp":         {tree("/usr", "/tmp"), "own /tmp"},
		"a tree of sockets":            {tree("/run", ""), "own /run/bailey"},
		"a tree where sockets are":     {tree("/usr/bin", "/run/bailey"), "/run is not for trees"},
		"a tree of the kernel's":       {tree("/sys/kernel", ""), "/sys"},
		"a tree over devices":          {tree("/usr/bin", "/dev/pts"), "/dev is not for trees"},
		"a tree that does not exist":   {tree("/no/such/tree", ""), "leave out paths that do not exist"},
		"a tree without a root":        {tree("usr", ""), "not an absolute path"},
		"a tree at no canonical path":  {tree("/usr/bin", "/opt/../usr"), "no canonical"[3:]},
		"a masked tree":                {tree(secret, ""), "is masked"},
		"a tree that shows a mask":     {tree(y.outside, "/opt/outside"), "in it is masked"},
		"a tree where the project is":  {tree(y.project, ""), "different contents"},
		"a tree in the project":        {tree("/usr/bin", y.in("bin")), "which is writable"},
		"a kept link":                  {keep(y.in(".idea")), "symbolic link"},
		"what lies behind a link":      {keep(y.in(".git/way/pre-commit")), "symbolic link"},
		"what does not exist":          {keep(y.in("nothing")), "leave out paths that do not exist"},
		"what is elsewhere":            {keep(y.outside), "is in no place"},
		"all of a place":               {keep(y.project), "is in no place"},
		"what is in the home":          {keep(homeDir + "/x"), "is in no place"},
		"no canonical path":            {keep(y.project + "/src/../.git"), "is in no place"},
		"a file with two names":        {keep(y.in("main.go")), "another hard link"},
		"a directory with such a file": {keep(y.in(".vscode")), "another hard link"},
		"a home around a mask":         {func(job *bailey.Job) { h := place(t, filepath.Dir(secret), true); job.Wall.Home = &h }, "it would show " + secret},
		"a home that is masked":        {func(job *bailey.Job) { h := place(t, secret, true); job.Wall.Home = &h }, "is masked"},
		"a home that is the project":   {func(job *bailey.Job) { h := place(t, y.project, true); job.Wall.Home = &h }, "contain one another"},
		"a home around the project":    {func(job *bailey.Job) { h := place(t, filepath.Dir(y.project), true); job.Wall.Home = &h }, "contain one another"},
		"a home in the project":        {func(job *bailey.Job) { h := place(t, y.in("src"), true); job.Wall.Home = &h }, "contain one another"},
		"a home that is a file":        {func(job *bailey.Job) { h := place(t, filepath.Join(y.outside, "key"), true); job.Wall.Home = &h }, "is not a directory"},
		"a search path from here":      {func(job *bailey.Job) { job.Wall.Path = "/usr/bin::/bin" }, "search path"},
	} {
		job := y.job(t, "true")
		c.change(&job)
		r := ask(t, y.Jail, job)
		if r.err == nil || !strings.Contains(r.err.Error()+" "+bailey.HintOf(r.err), c.say) {
			t.Errorf("%s: %v (%s)", what, r.err, bailey.HintOf(r.err))
		}
	}
	ask(t, y.Jail, y.job(t, "true")).must(t)
}

// TestWallHomeBeneathAMask checks that a home below a masked directory can be used, and nothing else there is visible.
func TestWallHomeBeneathAMask(t *testing.T) {
	y := newYard(t)
	y.mask = []string{filepath.Dir(y.home) + "/home"}
	inner := filepath.Join(y.home, "of-the-project")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(y.home, "token"), "a token\n", 0o644)
	job := y.job(t, "echo kept > ~/note; ls -A ~/.. ~ "+y.home)
	home := place(t, inner, true)
	job.Wall.Home = &home
	r := ask(t, y.Jail, job).must(t)
	if b, err := os.ReadFile(inner + "/note"); err != nil || string(b) != "kept\n" || strings.Contains(r.out, "token") {
		t.Errorf("%q %v, %q", b, err, r.out)
	}
}

// TestWallNeedsNamespaces checks that an agent never gets the lesser cage.
func TestWallNeedsNamespaces(t *testing.T) {
	j := lesserJail(t, Config{})
	r := ask(t, j, bailey.Job{Command: "/bin/true", Wall: &bailey.Wall{}})
	if !errors.Is(r.err, bailey.Unavailable) || !strings.Contains(r.err.Error(), "layer mountns") || !strings.Contains(bailey.HintOf(r.err), "use a host with namespaces") {
		t.Errorf("%v (%s)", r.err, bailey.HintOf(r.err))
	}
}

// TestWallCoversSockets checks that no socket of the host in a place can be reached, and that the agent's own sockets
// work where they are allowed.
func TestWallCoversSockets(t *testing.T) {
	ktest.Require(t, "python3")
	y := newYard(t)
	heard := make(chan string, 8)
	for _, name := range []string{"top", "src/socket"} {
		l, err := net.Listen("unix", y.in(name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		os.Chmod(y.in(name), 0o777)
		go func() {
			if c, err := l.Accept(); err == nil {
				heard <- name
				c.Close()
			}
		}()
	}
	r := y.run(t, `cat > c.py <<'END'
import os, socket, sys
def tries(what, f):
    try: f(); print(what, "yes")
    except OSError as e: print(what, "no")
def at(path): tries("connect " + path, lambda: socket.socket(socket.AF_UNIX).connect(path))
at("top"); at("src/socket")
tries("rename", lambda: os.rename("top", "other"))
tries("link", lambda: os.link("top", "other"))
tries("around", lambda: os.rename("src", "lib")); at("lib/socket")
tries("in the project", lambda: socket.socket(socket.AF_UNIX).bind("mine"))
for d in "/tmp", os.environ["HOME"]:
    s = socket.socket(socket.AF_UNIX); s.bind(d + "/mine"); s.listen(1); at(d + "/mine")
END
python3 c.py`).must(t)
	want := "connect top no\nconnect src/socket no\nrename no\nlink no\naround yes\nconnect lib/socket no\nin the project no\nconnect /tmp/mine yes\nconnect /home/bailey/mine yes\n"
	if r.out != want {
		t.Errorf("%q %s", r.out, r.log)
	}
	select {
	case name := <-heard:
		t.Errorf("%s heard from the cage", name)
	default:
	}
}

// TestWallTellsWhatItWaives checks that the receipt names each part of a layer that an agent jail leaves out.
func TestWallTellsWhatItWaives(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	job := y.job(t, "true")
	cage := planCage(t, y.Jail, job)
	for _, want := range []string{"noexec in what the agent writes, but /tmp", "landlock resolve-unix", "kept: files that the host puts others in the place of"} {
		if held := y.landlock >= resolveEdition && strings.HasPrefix(want, "landlock"); slices.Contains(cage.Lacks, want) == held {
			t.Errorf("%q: %q", want, cage.Lacks)
		}
	}
	if !slices.Contains(cage.Layers, "kept") {
		t.Errorf("%q", cage.Layers)
	}
	job.Wall = &bailey.Wall{Trees: hostTrees()}
	if cage := planCage(t, y.Jail, job); slices.ContainsFunc(cage.Lacks, func(l string) bool { return strings.Contains(l, "noexec") || strings.Contains(l, "resolve") }) {
		t.Errorf("a wall that waives nothing lacks %q", cage.Lacks)
	}
}

// TestWallAsksForResolve checks that if the kernel has the right to connect to a socket by path, the plan handles it
// and grants it only for the cage's own sockets.
func TestWallAsksForResolve(t *testing.T) {
	for abi, want := range map[int]uint64{resolveEdition - 1: 0, resolveEdition: mayResolveUnix} {
		l, p := newLayout(), &plan{}
		l.wall = &bailey.Wall{Unix: true}
		l.net = &bailey.Network{Listen: []bailey.Listen{{Network: "unix", Address: netDir + "/mcp.sock"}}}
		l.addLandlockSteps(p, abi)
		granted := map[string]bool{}
		for _, s := range p.steps {
			switch s.Op {
			case inside.Ruleset:
				if s.N[0]&mayResolveUnix != want {
					t.Errorf("edition %d handles %#x", abi, s.N[0])
				}
			case inside.Rule:
				granted[s.S[0]] = granted[s.S[0]] || s.N[0]&mayResolveUnix != 0
			}
		}
		if got := want != 0; granted[netDir] != got || granted[tmpDir] != got || granted["/"] || granted[homeDir] {
			t.Errorf("edition %d: %v", abi, granted)
		}
	}
}

// TestWallDigestsWhatItShows checks that different Walls have different digests.
func TestWallDigestsWhatItShows(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	seen := map[string]string{}
	for what, change := range map[string]func(*bailey.Wall){
		"all": func(*bailey.Wall) {}, "no home": func(w *bailey.Wall) { w.Home = nil }, "nothing run": func(w *bailey.Wall) { w.Run = false },
		"nothing kept": func(w *bailey.Wall) { w.Keep = nil }, "no sockets": func(w *bailey.Wall) { w.Unix = false }, "no terminals": func(w *bailey.Wall) { w.Pty = false },
		"fewer trees": func(w *bailey.Wall) { w.Trees = w.Trees[1:] },
	} {
		job := y.job(t, "true")
		change(job.Wall)
		d := planCage(t, y.Jail, job).PlanDigest
		if was := seen[d]; was != "" || d == "" {
			t.Errorf("%s and %s have the digest %q", what, was, d)
		}
		seen[d] = what
	}
}

// TestWallPty checks that the cage has its own terminals, into which no input can be injected (TIOCSTI).
func TestWallPty(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "python3", "pty")
	y := newYard(t)
	r := y.run(t, `python3 -c '
import fcntl, os, pty, termios
a, b = os.openpty(); print(os.ttyname(b), sorted(os.listdir("/dev/pts")))
try: fcntl.ioctl(b, termios.TIOCSTI, b"x"); print("typed")
except OSError as e: print(e.errno)'`).must(t)
	if want := "/dev/pts/0 ['0', 'ptmx']\n1\n"; r.out != want {
		t.Errorf("%q %s", r.out, r.log)
	}
}

// TestWallTerminal checks that the terminal of a person's run can also be queried and set as /dev/tty, and that job
// control works.
func TestWallTerminal(t *testing.T) {
	ktest.Long(t)
	master, slave := pty(t)
	y := newYard(t)
	job := y.job(t, "stty -F /dev/tty rows 7 && stty size < /dev/tty; bash -ic 'sleep 0 & wait; jobs; echo $-' | grep -c m")
	job.TTY = true
	r, err := y.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{TTY: slave})
	slave.Close()
	said, _ := io.ReadAll(master)
	if err != nil || exit.Code != 0 || !strings.Contains(string(said), "7 0") || strings.Contains(string(said), "job control") {
		t.Errorf("%+v %v %q", exit, err, said)
	}
}

// TestWallLimits checks that the limits of an agent, for each process and for all, are as configured.
func TestWallLimits(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	job := y.job(t, "ulimit -n; df -k --output=size /tmp | tail -1")
	job.Wall.Home = nil
	r := ask(t, y.Jail, job).must(t)
	want := []string{fmt.Sprint(min(4096, ownCeiling(unix.RLIMIT_NOFILE))), fmt.Sprint(2 << 20)}
	if got := strings.Fields(r.out); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := planCage(t, y.Jail, job).Plan; !strings.Contains(text, fmt.Sprintf(" memory %d env ", min(4<<30, ownCeiling(unix.RLIMIT_DATA)))) {
		t.Errorf("another memory in\n%s", text)
	}
	b := y.holder.boundsFor(job.Limits)
	if b.memory != 4<<30 || b.tasks != 1024+ownTasks {
		t.Errorf("%+v", b)
	}
	if r := ask(t, y.Jail, y.job(t, "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done; echo $i; kill $(jobs -p)")).must(t); !strings.Contains(r.out, "300") {
		t.Errorf("no three hundred tasks: %+v %s", r, r.log)
	}
}
