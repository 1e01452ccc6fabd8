// Package hostile builds git repositories that attack a user who queries them: one for each configuration key, each
// verified by its effect. The tests of the git pack and of the cage use them.
//
// A program that an attack makes git run creates the file Marker and writes the word Ran to stderr. Text that an attack
// makes git reveal or write is in Leak. The plain command Control must show one of the two, otherwise the attack does
// not work and proves nothing. A query through the gate must show neither.
package hostile

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Ran is the text that an attack's program writes to stderr.
const Ran = "hostile-program-ran"

// Wall is the protection that stops an attack.
type Wall string

// The protections. Options are those of the manifest: its args and its env, without any cage.
const (
	Options Wall = "options"
	Cage    Wall = "cage"
)

// Repository is one attack, built.
type Repository struct {
	Key     string // the configuration key, or the file, that carries the attack
	Wall    Wall
	Dir     string   // directory to query: the value of the input repo
	Target  string   // for a push: the destination, which is the value of the input to
	Control []string // arguments of plain git, run in Dir, with which the attack works
	TTY     bool     // works only if stdout is a terminal
	Marker  string   // file that the attack's program creates
	Stops   bool     // for commands that write: the attack may prevent the work
	Leak    string   // text in the output if the attack works; "" if it runs a program
	Arm     func()   // must be called before every query: restores state that a query may have used up
}

// attack describes a Repository before it is built.
type attack struct {
	key     string
	wall    Wall
	control []string
	tty     bool
	leak    string
	stops   bool
	build   func(*builder)
}

// Repositories builds every attack on queries, each in its own directory below dir. It needs git and sh.
func Repositories(t testing.TB, dir string) []Repository {
	t.Helper()
	return buildAttacks(t, dir, allAttacks(), func(*builder) {})
}

func buildAttacks(t testing.TB, dir string, all []attack, then func(*builder)) []Repository {
	t.Helper()
	var repos []Repository
	for _, a := range all {
		root := filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-", "*", "x").Replace(a.key))
		b := newBuilder(t, root)
		a.build(b)
		then(b)
		repos = append(repos, Repository{Key: a.key, Wall: cmp.Or(a.wall, Options), Dir: b.look, Target: b.target, Control: a.control, TTY: a.tty, Marker: b.marker, Leak: a.leak, Stops: a.stops, Arm: b.arm})
	}
	return repos
}

// Inert builds one repository in which every key of [Dead] is set, so that it would run the marker's program if it were
// obeyed.
func Inert(t testing.TB, dir string) Repository {
	t.Helper()
	b := newBuilder(t, filepath.Join(dir, "inert"))
	b.writeFile("repo/.gitattributes", "* merge=evil filter=evil\n")
	b.commitAll("attributes")
	b.addMergeCommit()
	for _, d := range Dead() {
		b.setConfig(d.Key, d.value(b))
	}
	b.writeFile("repo/file", "changed\n")
	return Repository{Key: "inert", Wall: Options, Dir: b.look, Marker: b.marker, Arm: b.arm}
}

// builder makes one repository.
type builder struct {
	t      testing.TB
	root   string // contains all files of this attack
	repo   string
	target string // a bare repository to push to, in the attacks that push
	look   string // directory to query; the repository unless the attack changes it
	marker string
	evil   string // a program inside the repository that leaves the marker
	arm    func()
}

// newBuilder creates a repository with two commits, a program that creates the marker, and a file in the work tree that
// differs from the index.
func newBuilder(t testing.TB, root string) *builder {
	t.Helper()
	repo := filepath.Join(root, "repo")
	b := &builder{t: t, root: root, repo: repo, look: repo, marker: filepath.Join(root, "marker"),
		evil: filepath.Join(repo, ".git", "evil")}
	b.arm = func() { os.Remove(b.marker) }
	b.makeDir(repo)
	b.runGit("init", "--quiet", "--initial-branch=main")
	b.writeFile("repo/file", "one\n")
	b.commitAll("one")
	b.writeFile("repo/file", "two\n")
	b.commitAll("two")
	b.writeFile("repo/file", "three\n")
	b.writeProgram(".git/evil", "")
	return b
}

// writeProgram writes a script below the repository that creates the marker and then executes then.
func (b *builder) writeProgram(name, then string) {
	b.writeFile("repo/"+name, "#!/bin/sh\n"+b.markerCommand()+"\n"+then+"\n")
	b.failOnError(os.Chmod(filepath.Join(b.repo, name), 0o755))
}

// markerCommand returns a shell command that creates the marker.
func (b *builder) markerCommand() string { return "echo ran >'" + b.marker + "'; echo " + Ran + " >&2" }

func (b *builder) failOnError(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) makeDir(path string) { b.t.Helper(); b.failOnError(os.MkdirAll(path, 0o755)) }

// writeFile creates a file below the attack's directory.
func (b *builder) writeFile(name, content string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	b.makeDir(filepath.Dir(path))
	b.failOnError(os.WriteFile(path, []byte(content), 0o644))
}

// runGit runs plain git in the repository.
func (b *builder) runGit(args ...string) string { b.t.Helper(); return b.runGitIn(b.repo, "", args...) }

// runGitIn runs plain git in dir and returns its output without the last newline.
func (b *builder) runGitIn(dir, stdin string, args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git",
		append([]string{"-c", "protocol.file.allow=always", "-c", "core.fsync=none"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, Environ(b.root), strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Environ returns the environment of plain git: only the repository's own configuration applies.
func Environ(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TERM=xterm", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=An Author", "GIT_AUTHOR_EMAIL=author@example.org", "GIT_COMMITTER_NAME=An Author", "GIT_COMMITTER_EMAIL=author@example.org"}
}

func (b *builder) setConfig(key, value string) { b.t.Helper(); b.runGit("config", key, value) }

func (b *builder) commitAll(message string) {
	b.t.Helper()
	b.runGit("add", "--all")
	b.runGit("commit", "--quiet", "--allow-empty", "--message="+message)
}

// addMergeCommit creates a merge commit on main with changes from both sides.
func (b *builder) addMergeCommit() {
	b.t.Helper()
	b.runGit("checkout", "--quiet", "-b", "side")
	b.writeFile("repo/other", "side\n")
	b.commitAll("side")
	b.runGit("checkout", "--quiet", "main")
	b.writeFile("repo/more", "main\n")
	b.commitAll("main")
	b.runGit("merge", "--quiet", "--no-edit", "side")
}
