package packs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"bailey/internal/ktest"
	"bailey/pack"
)

// gitEnv makes git independent of the machine and of the time.
func gitEnv(home string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TERM=dumb", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:", "GIT_MERGE_AUTOEDIT=no",
		"GIT_AUTHOR_DATE=2026-03-04T05:06:07Z", "GIT_COMMITTER_DATE=2026-03-04T05:06:07Z"}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		env = append(env, "GIT_"+who+"_NAME=Bailey", "GIT_"+who+"_EMAIL=bailey@localhost")
	}
	return env
}

// gitSample makes a repository with branches, a merge, tags, a rename, a stash, and changes of each kind.
func gitSample(t *testing.T) string {
	t.Helper()
	ktest.Require(t, "git")
	dir := filepath.Join(t.TempDir(), "repo")
	script := `set -e
git init -q -b main "$1" && cd "$1"
mkdir -p cmd docs
for i in 1 2 3 4 5 6 7 8 9; do echo "line $i" >> cmd/main.go; echo "text $i" >> docs/notes.md; done
printf '*.o\n' > .gitignore
git add . && git commit -qm 'first: PAY-1423' && git tag v1.0.0
sed -i 's/line 3/line three/' cmd/main.go && git commit -qam 'cmd: write three' && git tag -a v1.1.0 -m v1.1.0
git switch -qc feature/search && echo search > cmd/search.go && git add . && git commit -qm 'search: begin'
git mv docs/notes.md docs/readme.md && git commit -qm 'docs: rename'
git switch -q main && echo more >> cmd/main.go && git commit -qam 'main: more'
git branch spike/graphql && git branch done v1.0.0
git switch -qc merged v1.1.0 && echo m > m && git add m && git commit -qm 'merged: m' && git switch -q main && git merge -q --no-edit merged
for i in $(seq 25); do echo $i > counter && git add counter && git commit -qm "count $i"; done
echo aside >> cmd/main.go && git stash -q
echo changed >> docs/notes.md && echo new > new.txt && echo staged > staged.txt && git add staged.txt && echo x > x.o
git remote add origin https://git.example.org/shop.git
rm -f .git/hooks/*
`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", dir)
	cmd.Env = gitEnv(t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// outputOf returns what a command writes and its exit code.
func outputOf(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out) + cmd.ProcessState.String()
}

// runMeaning runs the call that a line means, and returns its class and its output.
func runMeaning(t *testing.T, line, dir, home string) (pack.SideEffect, string) {
	t.Helper()
	words, err := shell.Fields(line, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := pack.Meanings(catalog(t).All(), words)
	if len(found) != 1 || len(found[0].Inputs) != 1 {
		t.Errorf("%s: %d meanings", line, len(found))
		return "", ""
	}
	input := found[0].Inputs[0]
	input["repo"] = dir
	j := job(t, found[0].ID, input, map[string]string{"repo": dir})
	return found[0].SideEffect, outputOf(t, dir, append(gitEnv(home), j.Env...), j.Command, j.Args...)
}

// TestGitLooksTheSame checks that lines that only read have the output and the exit code of git itself.
func TestGitLooksTheSame(t *testing.T) {
	ktest.Long(t)
	dir, home := gitSample(t), t.TempDir()
	for line := range strings.Lines(readLines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		words, _ := shell.Fields(line, nil)
		class, got := runMeaning(t, line, dir, home)
		if class != pack.ReadOnly && class != "" {
			t.Errorf("%s is %s", line, class)
		}
		if want := outputOf(t, dir, gitEnv(home), "git", words[1:]...); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
		}
	}
}

const readLines = `
git status
git status -s
git status -sb
git status --porcelain=v2 --branch
git status --ignored -- docs
git log
git log -3
git log -n 2 --stat
git log --oneline
git log --oneline --graph --decorate --all
git log --grep="PAY-1423" --all --oneline
git log v1.0.0..v1.1.0 --no-merges --format='%s (%an)'
git log --pretty=format:"%h %an %ad %s" --date=short -n 20
git log --author=bailey --since="2020-01-01" --oneline -- cmd
git log -p -1
git log -p -S three
git log --follow -p docs/readme.md
git log main..feature/search
git log --name-status -2
git log -L 1,3:cmd/main.go -s
git log --merges
git log nothing
git --no-pager log -1
git diff
git diff --staged
git diff --cached --stat
git diff HEAD
git diff HEAD -- '*.md' ':!cmd'
git diff -U10 HEAD^ HEAD -- cmd/
git diff --name-only main...feature/search
git diff --name-status v1.0.0 v1.1.0
git diff -w --word-diff
git diff -M --summary main feature/search
git diff docs/notes.md
git diff --exit-code --quiet
git show
git show HEAD~1
git show --stat v1.1.0
git show v1.0.0:cmd/main.go
git show --name-only --oneline HEAD
git branch
git branch -a
git branch -vv
git branch --show-current
git branch --contains v1.1.0
git branch --merged main
git branch --no-merged
git branch --list 'feat*'
git branch --sort=-committerdate --format='%(refname:short)'
git blame cmd/main.go
git blame -L 2,4 cmd/main.go
git blame -w -C -C --date=short v1.1.0 -- cmd/main.go
git grep -n line
git grep -nI 'line three' -- '*.go'
git grep -l -i LINE v1.0.0
git grep -c -e line --and -e three
git rev-parse HEAD
git rev-parse --short HEAD
git rev-parse --abbrev-ref HEAD
git rev-parse --show-toplevel
git describe --tags --always --dirty
git describe --abbrev=0
git reflog
git reflog -3
git stash list
git stash show
git stash show -p stash@{0}
git remote
git remote -v
git remote get-url origin
git tag
git tag -l 'v1.*'
git tag -n
git tag --sort=-v:refname
git tag --contains v1.1.0
git ls-files
git ls-files -m
git ls-files --others --exclude-standard
git ls-tree -r --name-only HEAD
git cat-file -p HEAD
git cat-file -t v1.1.0
git merge-base main feature/search
git rev-list --count HEAD
git shortlog -sn HEAD
git show-ref
git for-each-ref --sort=-refname --format='%(refname)' refs/heads
git worktree list
git range-diff v1.0.0 main feature/search
git cherry -v main feature/search
git name-rev HEAD
git count-objects -v
git check-ignore -v x.o
git config --get remote.origin.url
git config core.bare
git config --local --get-all remote.origin.fetch
git config --get no.such
git config --type=bool core.filemode
git config --list
git config -l --name-only
git diff --no-index cmd/main.go docs/notes.md
git diff --no-index --stat cmd docs
git diff --no-index counter counter
git clean -nd
git add --dry-run .
git version
git help
git --help
git show stash@{0}
git log -1 HEAD@{1} --oneline
git symbolic-ref HEAD
git symbolic-ref -q --short HEAD
git symbolic-ref refs/remotes/origin/HEAD
git diff-tree --no-commit-id --name-only -r HEAD
git diff-tree -p v1.0.0 v1.1.0 -- cmd
git diff-index --quiet HEAD --
git diff-index --name-status HEAD
git diff-index --cached HEAD
git annotate cmd/main.go
git whatchanged -2
git show-branch main feature/search
git check-attr -a cmd/main.go
git check-attr text diff -- cmd/main.go
git check-ref-format --branch feature/x
git check-ref-format refs/heads/a..b
git hash-object counter cmd/main.go
git fsck
git fsck --no-dangling --connectivity-only
git rev-parse --git-path index
git rev-parse --verify --quiet nothing
git rev-list --objects --all
git rev-list --count --left-right main...feature/search
git shortlog -sn --all --no-merges
git notes
git notes list
git notes show HEAD
git sparse-checkout list
git rerere status
git reflog --date=iso
git submodule
git submodule status
git cat-file blob HEAD:counter
git for-each-ref --format='%(refname:short) %(objecttype)' refs/tags
git ls-files --eol
git describe --tags --abbrev=0
git merge-base --is-ancestor v1.0.0 HEAD
`

// TestGitDoesTheSame checks that lines that change a repository leave it as git itself does.
func TestGitDoesTheSame(t *testing.T) {
	ktest.Long(t)
	sample, home := gitSample(t), t.TempDir()
	for line := range strings.Lines(writeLines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		t.Run(strings.ReplaceAll(line, "/", "|"), func(t *testing.T) {
			t.Parallel()
			compareWrites(t, line, sample, home)
		})
	}
}

// compareWrites runs a line as a call and as itself, each in a copy of a repository, and compares what they leave.
func compareWrites(t *testing.T, line, sample, home string) {
	t.Helper()
	var states, said [2]string
	for i := range states {
		dir := filepath.Join(t.TempDir(), "repo")
		if err := os.CopyFS(dir, os.DirFS(sample)); err != nil {
			t.Fatal(err)
		}
		before := ""
		for part := range strings.SplitSeq(line, " ; ") { // all but the last part prepare
			if before != "" {
				outputOf(t, dir, gitEnv(home), "sh", "-c", before)
			}
			before = part
		}
		before = strings.TrimSpace(before)
		words, _ := shell.Fields(before, nil)
		if i == 0 {
			_, said[i] = runMeaning(t, before, dir, home)
		} else {
			said[i] = outputOf(t, dir, gitEnv(home), "git", words[1:]...)
		}
		states[i] = strings.ReplaceAll(outputOf(t, dir, gitEnv(home), "sh", "-c", writtenState), dir, "repo")
	}
	if states[0] != states[1] {
		t.Errorf("%s leaves\n%s\n(it said %s)\nwant\n%s\n(git said %s)", line, states[0], said[0], states[1], said[1])
	}
}

// writtenState is a script that shows all that a line may have changed.
const writtenState = `git rev-parse HEAD; git symbolic-ref HEAD; git for-each-ref; git stash list; git status --porcelain=v2 --branch --ignored
git ls-files --stage -v; git diff --binary; git diff --cached; git config --local --list; git worktree list; git reflog; git count-objects
git notes list; git sparse-checkout list; ls .git; ls; git bisect log; cat .git/HEAD`

const writeLines = `
git remote add theirs git@github.com:c/b.git
git remote add -t main --no-tags theirs https://git.example.org/c/b.git
git remote set-url origin https://git.example.org/other.git
git remote set-url --push origin https://git.example.org/other.git
git remote rename origin upstream
git remote remove origin
git remote rm origin
git config user.email someone@example.org
git config --bool pull.rebase true
git config user.name x ; git config --unset user.name
git worktree add trees/x
git worktree add -b fix trees/fix v1.0.0
git worktree add -q trees/x ; git worktree remove trees/x
git worktree add -q trees/x ; git worktree remove --force trees/x
git worktree add -q trees/x ; git worktree prune
git add new.txt docs
git add -A
git add -u
git add .
git commit -m "one thing"
git commit -am "all of it"
git commit -s -m "docs: clarify" -m "Refs #482"
git commit --allow-empty -m "ci: trigger build"
git commit --fixup=HEAD~2
git commit --amend --no-edit
git commit --amend -m "better"
git switch feature/search
git switch -c feature/oauth
git switch -c hotfix v1.0.0
git switch --discard-changes done
git checkout feature/search
git checkout -b hotfix/1.4.1 v1.1.0
git checkout -- docs/notes.md
git checkout .
git checkout v1.0.0 -- cmd/main.go
git branch feature/rate-limit
git branch -d merged
git branch -D feature/search
git branch -m spike/graphql spike/rest
git tag v2.0.0
git tag -a v2.0.0 -m "second"
git tag -d v1.0.0
git restore docs/notes.md
git restore --staged staged.txt
git restore --source=HEAD~1 --staged --worktree counter
git reset
git reset HEAD -- staged.txt
git reset --soft HEAD~1
git reset HEAD~1
git reset --hard HEAD~2
git stash
git stash push -u -m later
git stash push -- docs
git checkout . ; git stash pop
git stash apply
git stash drop
git stash clear
git stash ; git merge feature/search
git stash ; git merge --no-ff done -m "Merge done"
git stash ; git switch -q feature/search ; git rebase main
git rebase --autostash HEAD
git stash ; git cherry-pick feature/search~1
git stash ; git revert --no-edit HEAD
git mv counter count
git rm --cached counter
git rm -r cmd
git clean -fd
git clean -fdx
git add -f x.o
git add -N new.txt
git add '*.txt'
git add ':!docs'
git add --chmod=+x counter
git commit -qm "named" docs/notes.md
echo "from a file" > msg ; git commit -F msg
git commit -a -C HEAD~1
git commit --amend --author="Ann <ann@example.org>" --no-edit
git stash ; git checkout v1.0.0
git stash ; git checkout HEAD~2
git stash ; git checkout --detach
git stash ; git checkout --orphan pages
git stash ; git switch --orphan pages
git stash ; git switch --detach v1.1.0
git stash ; git switch -q done ; git switch -
git stash ; git switch -q done ; git checkout -
git checkout HEAD~3 counter
git checkout v1.0.0 cmd/main.go
git reset HEAD staged.txt
git reset staged.txt
git reset -q HEAD~1 -- counter
git reset --keep HEAD~1
git reset --merge HEAD
git stash --all
git stash -k
git stash -m later
git stash push -m later docs
git stash ; git stash branch aside
git branch -u main feature/search
git branch --set-upstream-to=main feature/search
git branch -q -u main done ; git branch --unset-upstream done
git branch -M trunk
git branch -M spike/graphql done
git branch -f done HEAD~2
git branch -c done done-too
git branch -C done merged
git tag -f v1.0.0
git tag -f -a v1.0.0 -m again HEAD~1
git symbolic-ref HEAD refs/heads/done
git update-ref refs/heads/done HEAD
git update-ref -d refs/heads/done
git update-ref -m why refs/tags/x HEAD~1
git commit --dry-run -a
git update-index --refresh
git update-index --assume-unchanged counter
git update-index --skip-worktree docs/notes.md
git update-index --chmod=+x counter
git hash-object -w counter
git mv -f counter cmd/main.go
git notes add -m "reviewed" HEAD
git notes add -m one HEAD ; git notes append -m two HEAD
git notes add -m one HEAD ; git notes add -f -m two HEAD
git notes add -m one HEAD ; git notes remove HEAD
git stash ; git sparse-checkout set docs
git stash ; git sparse-checkout init --cone
git stash ; git sparse-checkout set docs ; git sparse-checkout add cmd
git stash ; git sparse-checkout set docs ; git sparse-checkout disable
git gc
git gc --prune=now
git prune
git repack -ad
git pack-refs --all
git commit-graph write --reachable
git reflog expire --expire=now --all
git reflog delete HEAD@{1}
git archive --format=zip -o out.zip HEAD
git archive -o out.tar.gz --prefix=app/ HEAD cmd
git bundle create all.bundle --all
git bundle create some.bundle main
git format-patch -o patches HEAD~2
git format-patch -1 HEAD
git stash ; git format-patch -q -o p v1.0.0..v1.1.0 ; git switch -q -c a v1.0.0 ; git am p/0001-cmd-write-three.patch
git stash ; git format-patch -q -o p v1.0.0..v1.1.0 ; git switch -q -c a done ; echo x > cmd/main.go ; git commit -qam a ; git am -3 p/0001-cmd-write-three.patch ; git am --abort
git stash ; git format-patch -q -o p v1.0.0..v1.1.0 ; git switch -q -c a done ; echo x > cmd/main.go ; git commit -qam a ; git am p/0001-cmd-write-three.patch ; git am --skip
git stash ; git switch -q -c a main~3 ; echo a > counter ; git commit -qam a ; git rebase main ; git rebase --quit
git stash ; git switch -q -c a main~3 ; echo a > counter ; git commit -qam a ; git cherry-pick main ; git cherry-pick --skip
git stash ; git switch -q -c a main~3 ; echo a > counter ; git commit -qam a ; git merge main ; git merge --quit
git stash ; git revert HEAD~3 ; echo b > counter ; git add counter ; git revert --continue
git stash ; git bisect start
git stash ; git bisect start HEAD v1.0.0
git stash ; git bisect start HEAD v1.0.0 ; git bisect good
git stash ; git bisect start HEAD v1.0.0 ; git bisect skip
git stash ; git bisect start HEAD v1.0.0 ; git bisect reset
git stash ; git bisect start HEAD v1.0.0 ; git bisect run grep -q 1 counter
git stash ; git rebase -x "touch ran" HEAD~2
git merge-tree main feature/search
git submodule init
git submodule foreach git status
git stash ; git switch -q -c a ; echo a > counter ; git commit -qam a ; git merge main~1 ; git merge --abort
git stash ; git switch -q -c a main~3 ; echo a > counter ; git commit -qam a ; git rebase main ; git rebase --abort
git stash ; git switch -q -c a main~3 ; echo a > counter ; git commit -qam a ; git rebase main ; echo b > counter ; git add counter ; git rebase --continue
`
