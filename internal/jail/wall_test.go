//go:build linux

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// hostTrees returns the directories of this host that an agent needs.
func hostTrees() (trees []bailey.Tree) {
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ssl"} {
		if _, err := os.Stat(path); err == nil {
			trees = append(trees, bailey.Tree{Path: path})
		}
	}
	return trees
}

// A yard is a project with files that an agent must not change, a home, and a directory outside.
type yard struct {
	*Jail
	project, home, outside string
	keep                   []string
}

func newYard(t *testing.T) *yard {
	t.Helper()
	root, err := os.MkdirTemp("/var/tmp", "bailey-wall-") // must be neither below a cage's own /tmp nor below its home
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	os.Chmod(root, 0o755)
	y := &yard{project: filepath.Join(root, "project"), home: filepath.Join(root, "home"), outside: filepath.Join(root, "outside")}
	for _, dir := range []string{"project/.git/hooks", "project/src/deep/inner", "project/.claude/sub", "home", "outside"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, y.in(".git/config"), "[core]\n", 0o644)
	put(t, y.in(".git/HEAD"), "ref: refs/heads/main\n", 0o644)
	put(t, y.in(".git/hooks/pre-commit"), "#!/bin/sh\n", 0o755)
	put(t, y.in(".claude/sub/settings.json"), "{}\n", 0o644)
	put(t, y.in(".envrc"), "export A=b\n", 0o644)
	put(t, y.in("src/main.go"), "package main\n", 0o644)
	put(t, filepath.Join(y.outside, "key"), "a key\n", 0o644)
	y.keep = []string{y.in(".git/config"), y.in(".git/hooks"), y.in(".claude"), y.in(".envrc")}
	y.Jail = newJail(t, Config{})
	return y
}

func (y *yard) in(name string) string { return filepath.Join(y.project, name) }

// job returns the job of an agent that runs a script in the project.
func (y *yard) job(t *testing.T, script string) bailey.Job {
	t.Helper()
	home := place(t, y.home, true)
	return bailey.Job{Command: "/bin/sh", Args: []string{"-c", script}, NeedsProc: true, Dir: y.project,
		Places: []bailey.Place{place(t, y.project, true)}, Limits: bailey.Limits{MemoryBytes: 4 << 30, Tasks: 1024, OpenFiles: 4096}, Timeout: bailey.Endless,
		Wall: &bailey.Wall{Trees: hostTrees(), Home: &home, Run: true, Keep: slices.Clone(y.keep), Path: "/usr/bin:/bin", Unix: true, Pty: true}}
}

func (y *yard) run(t *testing.T, script string) told {
	t.Helper()
	return ask(t, y.Jail, y.job(t, script))
}

// TestWallIsAPlaceToWork checks the usual operations of an agent.
func TestWallIsAPlaceToWork(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	r := y.run(t, `set -e
echo "$PATH $HOME"
printf '#!/bin/sh\necho built\n' > tool; chmod +x tool; ./tool
printf '#!/bin/sh\necho homely\n' > ~/tool; chmod +x ~/tool; ~/tool
echo text > /tmp/note; cat /tmp/note
echo ref > .git/index
mkdir -p new/dir; mv new/dir new/other; rm -r new
ls -d /etc/ssl`).must(t)
	if want := "/usr/bin:/bin /home/bailey\nbuilt\nhomely\ntext\n/etc/ssl\n"; r.out != want || r.exit.Code != 0 {
		t.Errorf("%+v %q %s", r.exit, r.out, r.log)
	}
	if _, err := os.Stat(filepath.Join(y.home, "tool")); err != nil {
		t.Error(err)
	}
}

// TestWallStands checks that paths outside the cage cannot be reached, that no program runs from /tmp, and that, for
// example, mount and chmod give no privileges.
func TestWallStands(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	for _, line := range []string{
		"cat " + y.outside + "/key", "ls /root", "ls /var/tmp/", "cp /bin/true /tmp/true; /tmp/true", "touch /usr/bailey-was-here", "touch /bailey-was-here",
		"mount -t tmpfs none /mnt", "unshare -U true", "chmod u+s tool",
	} {
		if r := y.run(t, "exec 2>/dev/null; "+line).must(t); r.exit.Code == 0 && strings.TrimSpace(r.out) != filepath.Base(filepath.Dir(y.project)) {
			t.Errorf("%s: %q", line, r.out)
		}
	}
}

// TestWallKeepsWhatItIsTold checks that every attempt to change a kept file's content or name fails.
func TestWallKeepsWhatItIsTold(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	for _, line := range []string{
		"echo x >> .git/config", "echo x > .git/hooks/new", "echo x > .claude/new", "echo x > .claude/sub/settings.json", ": > .envrc",
		"mv .git old", "mv .git/config old", "mv .git/hooks old", "mv .claude old", "mv .envrc old", "mv .claude/sub old",
		"rm -f .git/config", "rm -rf .git", "rm -rf .claude", "rmdir .git/hooks", "unlink .envrc",
		"ln .git/config other && echo x > other", "ln .envrc other", "ln .git/hooks/pre-commit other",
		"echo x > new; mv -f new .git/config", "echo x > new; mv -f new .envrc", "mkdir new; mv -T new .claude", "mkdir new; mv -T --exchange new .git",
		"chmod 777 .git/config", "chmod -x .git/hooks/pre-commit", "chmod 777 .claude", "touch -d 2001-01-01 .envrc", "truncate -s 0 .git/config",
		"exec 3<.git/config; echo x > /proc/self/fd/3", "exec 3<.git/hooks; echo x > /proc/self/fd/3/new",
		"ln -sfn /tmp .claude", "cp --remove-destination /bin/true .envrc", "mv ../project ../old", "mount --bind src .git", "umount .git/config",
		"cd /proc/self/cwd/.git && mv config old",
	} {
		before := y.state(t)
		r := y.run(t, line).must(t)
		if r.exit.Code == 0 && line != "ln -sfn /tmp .claude" { // ln creates the link in the directory
			t.Errorf("%s: %+v %q", line, r.exit, r.out)
		}
		if after := y.state(t); after != before {
			t.Errorf("%s: it is\n%s\nand was\n%s", line, after, before)
		}
	}
}

// TestWallKeepsInNestedPlaces checks that if a place lies in another, the directories between the outer place and a
// kept file stay too.
func TestWallKeepsInNestedPlaces(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	put(t, y.in("src/deep/inner/.envrc"), "A=b\n", 0o644)
	for _, line := range []string{"mv src lib", "mv src/deep src/other", "rm -rf src", "echo x >> src/deep/inner/.envrc"} {
		job := y.job(t, line)
		job.Places = append(job.Places, place(t, y.in("src/deep/inner"), true))
		job.Wall.Keep = []string{y.in("src/deep/inner/.envrc")}
		if r := ask(t, y.Jail, job).must(t); r.exit.Code == 0 {
			t.Errorf("%s: %+v", line, r)
		}
		if b, err := os.ReadFile(y.in("src/deep/inner/.envrc")); err != nil || string(b) != "A=b\n" {
			t.Errorf("%s: %q, %v", line, b, err)
		}
	}
}

// state returns the names, modes, times and contents of the kept files.
func (y *yard) state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, k := range y.keep {
		err := filepath.WalkDir(k, func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&b, "%s %v %v %q\n", path, info.Mode(), info.ModTime(), text)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return b.String()
}

// TestWallRunsPrograms runs programs that agents consist of or create.
func TestWallRunsPrograms(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"node": `node -e '
const {execFileSync, spawn} = require("child_process"), fs = require("fs"), os = require("os"), {Worker} = require("worker_threads")
fs.writeFileSync("a.js", "console.log(6*7)")
if (execFileSync(process.execPath, ["a.js"]).toString() != "42\n") process.exit(2)
const s = require("net").createServer(c => c.end("over a socket")).listen(os.homedir()+"/s", () =>
  require("net").connect(os.homedir()+"/s").on("data", d => {
    s.close()
    new Worker("require(\"worker_threads\").parentPort.postMessage(new WebAssembly.Memory({initial: 256}).buffer.byteLength)", {eval: true})
      .on("message", n => console.log(String(d), n, os.userInfo().username))
  }))'`,
		"git": `cd src; git init -q; git config user.email a@b; git config user.name a; git add .; git commit -qm one; git gc -q; git log --format=%s; git fsck --no-progress`,
		"go": `printf 'module m\n' > go.mod; printf 'package main\nfunc main() { println("ran") }\n' > m.go; mkdir ~/tmp
export GOTMPDIR=$HOME/tmp GOFLAGS=-buildvcs=false CGO_ENABLED=0 GOTOOLCHAIN=local; go build -o m . && ./m && go run .`,
		"python3": `python3 -c '
import multiprocessing, os, pty, socket, subprocess, tempfile
print(subprocess.check_output(["echo", "out"]).decode().strip())
with multiprocessing.Pool(2) as p: print(p.map(abs, [-1, -2]))
a, b = os.openpty(); print(os.ttyname(b)); pty.spawn(["/bin/sh", "-c", "tty"])'`,
		"bash": `bash -ec 'cat <(echo substituted); cat <<< here; exec 3<>/dev/null; echo $BASH_VERSION | wc -l'`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "go" && testing.Short() {
				t.Skip("short: it compiles its own library")
			}
			t.Parallel()
			const path = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin"
			if !slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool { _, err := exec.LookPath(filepath.Join(dir, name)); return err == nil }) {
				ktest.Missing(t, name, os.ErrNotExist)
			}
			y := newYard(t)
			job := y.job(t, script)
			job.Wall.Path = path
			r := ask(t, y.Jail, job).must(t)
			if r.exit.Code != 0 {
				t.Errorf("%+v\n%s%s", r.exit, r.out, r.log)
			}
		})
	}
}

// TestWallHasVarTmp checks that /var/tmp is the cage's /tmp, unless a path of the host is shown below it.
func TestWallHasVarTmp(t *testing.T) {
	y := newYard(t)
	job := bailey.Job{Command: "/bin/sh", Args: []string{"-c", "echo text > /var/tmp/note && cat /tmp/note"}, Wall: &bailey.Wall{Trees: hostTrees()}}
	if r := ask(t, y.Jail, job).must(t); r.out != "text\n" {
		t.Errorf("%+v %q %s", r.exit, r.out, r.log)
	}
	job.Read = []string{y.outside}
	if r := ask(t, y.Jail, job).must(t); r.exit.Code == 0 {
		t.Errorf("with a place beneath it: %+v %q", r.exit, r.out)
	}
	if _, err := os.Stat("/var/tmp/note"); err == nil {
		t.Error("the host's own was written")
	}
}
