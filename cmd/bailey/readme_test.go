package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// TestReadme follows README.md as a new user: with a fresh clone, and a home that contains an SSH key.
func TestReadme(t *testing.T) { newcomer(t).walk(t, "README.md") }

// TestPolicyGuide follows docs/policy.md with an installed Bailey. The time zone is set so that it is noon, because
// rules of the guide deny calls at night.
func TestPolicyGuide(t *testing.T) {
	ktest.Long(t)
	u := newcomer(t)
	u.env = append(u.env, fmt.Sprintf("TZ=Etc/GMT%+d", time.Now().UTC().Hour()-12))
	u.follow(t, step{words: "go install ./cmd/bailey"})
	u.walk(t, "docs/policy.md")
}

// TestBundlesGuide follows docs/packs.md as an author and as a user of packs.
func TestBundlesGuide(t *testing.T) {
	ktest.Long(t)
	u := newcomer(t)
	u.follow(t, step{words: "go install ./cmd/bailey"})
	u.walk(t, "docs/packs.md")
}

// TestAgentsGuide follows docs/agents.md as an operator who names an agent.
func TestAgentsGuide(t *testing.T) {
	ktest.Long(t)
	u := newcomer(t)
	u.follow(t, step{words: "go install ./cmd/bailey"})
	u.walk(t, "docs/agents.md")
}

// walk follows a document in order. In a block ```sh, a line that begins with "$ " is a command. "# exit N" at its end
// is the expected exit code, otherwise 0. After <<'END' it continues up to the line END. The lines before the next
// command must appear in the output, in this order. "…" matches any text.
func (u *user) walk(t *testing.T, doc string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", doc))
	if err != nil {
		t.Fatal(err)
	}
	steps := commands(string(text))
	if len(steps) < 10 {
		t.Fatalf("only %d commands found: this test is not reading %s", len(steps), doc)
	}
	for _, s := range steps {
		line, _, _ := strings.Cut(s.words, "\n")
		t.Run(line, func(t *testing.T) {
			switch name, _, _ := strings.Cut(s.words, " "); {
			case strings.HasPrefix(s.words, "go test"):
				t.Skip("this is the test that it runs")
			case name == "claude":
				ktest.Require(t, name)
			}
			u.follow(t, s)
		})
		if t.Failed() {
			break // later steps depend on the failed one
		}
	}
}

// step is one command of a document, with the expected exit code and output.
type step struct {
	words  string
	exit   int
	prints []string
}

var exitClaim = regexp.MustCompile(`\s+# exit (\d+)$`)

// commands returns the steps of all ```sh blocks.
func commands(text string) []step {
	var steps []step
	inside, here := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch {
		case here:
			steps[len(steps)-1].words += "\n" + line
			here = line != "END"
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case !inside || line == "":
		case strings.HasPrefix(line, "$ "):
			s := step{words: line[2:]}
			if m := exitClaim.FindStringSubmatch(s.words); m != nil {
				s.exit, _ = strconv.Atoi(m[1])
				s.words = strings.TrimSuffix(s.words, m[0])
			}
			here = strings.HasSuffix(s.words, "<<'END'")
			steps = append(steps, s)
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			last.prints = append(last.prints, strings.TrimSpace(line))
		}
	}
	return steps
}

// user is a person with a fresh clone of the repository.
type user struct {
	dir string // working directory of the user's shell
	pwd string // file in which each command stores its working directory
	env []string
}

func newcomer(t *testing.T) *user {
	t.Helper()
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "git", "go")
	if err := compiled(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	home, clone := filepath.Join(root, "me"), filepath.Join(root, "clone")
	for _, dir := range []string{home, filepath.Join(home, ".ssh"), filepath.Join(root, "bin")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key := "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5\n-----END OPENSSH PRIVATE KEY-----\n"
	if err := os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	u := &user{dir: clone, pwd: filepath.Join(root, "pwd"), env: goEnv(t)}
	u.env = append(u.env, portable...)
	u.env = append(u.env, "HOME="+home, "GOBIN="+filepath.Join(root, "bin"),
		"PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"), "TMPDIR="+os.TempDir(), "LC_ALL=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b")
	copyModule(t, clone)
	for _, words := range []string{"git init -q", "git add .", "git commit -qm 'the clone'"} {
		u.follow(t, step{words: words})
	}
	return u
}

// portable keeps the path of the clone out of the compiled packages, so that all clones share them in the build cache.
var portable = []string{"GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0"}

// compiled fills the build cache once, before the clones compile the same packages in parallel.
var compiled = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-o", os.DevNull, "./cmd/bailey")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), portable...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// goEnv keeps the caches of the toolchain, because HOME is different here.
func goEnv(t *testing.T) []string {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN", "CGO_ENABLED"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, names[i]+"="+value)
	}
	return env
}

// copyModule copies the files that the module is built from. .git may be missing or large.
func copyModule(t *testing.T, to string) {
	t.Helper()
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular() || !slices.Contains([]string{".go", ".s", ".mod", ".sum", ".yaml", ".cedar", ".txt", ".sh", ".bin", ".sql", ".html", ".css", ".js", ".svg", ".png"}, filepath.Ext(name)):
			return nil
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// follow runs one command as the user and compares the result with the document.
func (u *user) follow(t *testing.T, s step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", s.words+"\ncode=$?; pwd > \"$0\"; exit $code", u.pwd)
	cmd.Dir, cmd.Env = u.dir, u.env
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != s.exit {
		t.Fatalf("$ %s\nended with %d, the document says %d\n%s", s.words, got, s.exit, &out)
	}
	if missing := absent(s.prints, out.String()); missing != "" {
		t.Fatalf("$ %s\ndoes not print %q\n%s", s.words, missing, &out)
	}
	at, err := os.ReadFile(u.pwd)
	if err != nil {
		t.Fatal(err)
	}
	u.dir = strings.TrimSuffix(string(at), "\n")
}

// absent returns the first of the expected lines that out does not contain after the previous ones, or "".
func absent(promised []string, out string) string {
	lines := strings.Split(out, "\n")
	for _, want := range promised {
		form := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$")
		i := slices.IndexFunc(lines, func(l string) bool { return form.MatchString(strings.TrimSpace(l)) })
		if i < 0 {
			return want
		}
		lines = lines[i+1:]
	}
	return ""
}

func TestCommands(t *testing.T) {
	got := commands("text\n```\n$ not this\n```\n```sh\n$ one  # exit 3\nout…\n\n$ two # comment\n$ cat >f <<'END'\n$ x\n\nEND\ny\n```\n$ nor this\n")
	want := []step{{"one", 3, []string{"out…"}}, {"two # comment", 0, nil}, {"cat >f <<'END'\n$ x\n\nEND", 0, []string{"y"}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if absent([]string{"a…", "b"}, "x\n  abc\nb\n") != "" || absent([]string{"b", "a…"}, "abc\nb\n") != "a…" {
		t.Error("printed lines are compared out of order")
	}
}

// named matches the tests that documents refer to: functions and scripts.
var named = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+|[a-z0-9-]+\\.txtar)`")

// TestDocumentsNameWhatExists checks that every test that a document names exists.
func TestDocumentsNameWhatExists(t *testing.T) {
	have := tests(t)
	found := 0
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 9 {
		t.Fatal(docs, err)
	}
	for _, doc := range append(docs, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !have[m[1]] {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d tests named: this test is not reading the documents", found)
	}
}

var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)

// tests returns the names of all test functions and scripts.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			have[d.Name()] = true
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range declared.FindAllSubmatch(text, -1) {
				have[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}
