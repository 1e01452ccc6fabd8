//go:build linux

package day

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"bailey/internal/ktest"
	"bailey/test/scripted"
)

// insider is Claude Code in an agent jail, with a separate model outside.
type insider struct {
	*claude
}

// walled runs an agent in an agent jail. It can edit, test and commit as it would outside, and is refused a key, other
// parts of the machine and every host except its model.
func (d *day) walled() {
	ktest.Require(d.t, "claude", "node", "curl")
	u := d.u
	work := filepath.Join(u.home, "work")
	u.must(u.home, "git", "init", "-q", work)
	u.write(filepath.Join(work, "sum.sh"), "echo $(($1 - $2))\n")
	u.write(filepath.Join(work, "test.sh"), "test \"$(sh sum.sh 2 3)\" = 5 && echo the sum is right\n")
	u.must(work, "git", "add", ".")
	u.must(work, "git", "commit", "-qm", "subtract")

	m := newModel(d.t)
	settings := filepath.Join(u.home, ".bailey", "settings.yaml")
	u.write(settings, u.must(u.home, "cat", settings)+"network:\n  endpoints:\n    - to: "+strings.TrimPrefix(m.url, "http://")+"\n      private: true\n      plain: true\n      for: [wrap]\nmodel:\n  wrap: true\n  providers:\n    - {name: anthropic, url: \""+m.url+"\"}\n")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "init", "--apply", "--yes")
	u.must(work, "env", "BAILEY_OPERATOR=1", "bailey", "init", "--yes", work)

	in := &insider{&claude{t: d.t, u: u, model: m, out: &bytes.Buffer{}, gone: make(chan error, 1)}}
	in.cmd = u.command(work, "bailey", "wrap", "--yes", "--", "claude", "-p", "Mend the sum.", "--allowedTools", "Bash", "Write", "Edit", "Read", "mcp__bailey")
	in.cmd.Env = append(in.cmd.Env, "BAILEY_OPERATOR=1", "ANTHROPIC_BASE_URL="+m.url, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ENABLE_TOOL_SEARCH=false", "DISABLE_AUTOUPDATER=1")
	in.cmd.Stdout, in.cmd.Stderr = in.out, in.out
	if err := in.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() { in.gone <- in.cmd.Wait() }()
	d.t.Cleanup(func() { in.cmd.Process.Kill() })
	in.hear(patience)

	in.wants(false, "Read", map[string]any{"file_path": filepath.Join(work, "sum.sh")}, "$1 - $2")
	in.wants(false, "Write", map[string]any{"file_path": filepath.Join(work, "sum.sh"), "content": "echo $(($1 + $2))\n"})
	in.does("the sum is right", "cd "+work+" && sh test.sh")
	in.does("add", "git commit -qam 'add' && git log --oneline -1")
	in.does("No such file", "cat "+d.key+" 2>&1; cat ~/.ssh/id_* 2>&1")
	in.does("Cannot connect|not found|No such file", "docker ps 2>&1; ls -l /var/run/docker.sock 2>&1")
	in.does("operator", "bailey approve a-00000000000000000000000000 2>&1")
	in.does("No such file", "ls "+filepath.Join(u.home, ".bailey")+" 2>&1")
	in.does("egress to evil.example:443 is not allowed", "curl -sSv https://evil.example/ 2>&1")
	in.wants(false, prefix+"git_log", map[string]any{"repo": work}, "add")
	key := u.must(u.home, "cat", d.key)
	// a commit outside would overwrite the target of the link
	in.does("linked", "ln -sf "+d.key+" .git/COMMIT_EDITMSG && echo linked")
	in.says("That is mended.")

	if got := strings.TrimSpace(u.must(work, "git", "log", "-1", "--format=%s %an")); got != "add A Newcomer" {
		d.t.Errorf("outside the last commit is %q", got)
	}
	u.must(work, "git", "commit", "-q", "--allow-empty", "-m", "later")
	if u.must(u.home, "cat", d.key) != key || !strings.Contains(in.out.String(), ".git/COMMIT_EDITMSG was created, a symbolic link to") {
		d.t.Errorf("a link that the agent left in .git: %s", in.out)
	}
	if out := u.must(u.project, "bailey", "wrap", "--log"); !strings.Contains(out, "evil.example:443") {
		d.t.Errorf("what the agent was refused is not told: %s", out)
	}
	if out := u.must(u.project, "bailey", "model", "log"); strings.Count(out, " ok ") < 8 {
		d.t.Errorf("the requests to the model have no receipts: %s", out)
	}
	d.want = append(d.want, "ok") // git.log over the socket for calls
}

// does runs a command line in the agent's shell and checks that its output contains one of the given texts.
func (in *insider) does(tells, line string) {
	in.t.Helper()
	got := in.try("Bash", map[string]any{"command": line})
	for _, tell := range strings.Split(tells, "|") {
		if strings.Contains(got.Text, tell) {
			return
		}
	}
	in.t.Errorf("%s: does not tell %q: %s", line, tells, got.Text)
}

func (in *insider) wants(bad bool, tool string, input map[string]any, tells ...string) {
	in.t.Helper()
	got := in.try(tool, input)
	if got.Bad != bad {
		in.t.Errorf("%s %v: an error: %v: %s", tool, input, got.Bad, got.Text)
	}
	for _, tell := range tells {
		if !strings.Contains(got.Text, tell) {
			in.t.Errorf("%s %v does not tell %q: %s", tool, input, tell, got.Text)
		}
	}
}

func (in *insider) try(tool string, input map[string]any) scripted.Answer {
	in.t.Helper()
	in.calls++
	in.model.says <- scripted.Reply{ID: fmt.Sprintf("toolu_wall_%04d", in.calls), Tool: tool, Input: input}
	return in.hear(patience).Answer
}

// says ends the conversation and checks that the agent jail ends with it.
func (in *insider) says(last string) {
	in.t.Helper()
	in.model.says <- scripted.Reply{Text: last}
	select {
	case err := <-in.gone:
		if err != nil || !strings.Contains(in.out.String(), last) {
			in.t.Errorf("the wall ended with %v\n%s", err, in.out)
		}
	case <-time.After(patience):
		in.t.Fatalf("the wall does not end\n%s", in.out)
	}
}
