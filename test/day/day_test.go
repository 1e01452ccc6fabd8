// Package day is one day in the life of Bailey: a user who has just installed it, a project, an agent
// with a model that says what the story needs, a gateway that is killed all the time, and in the evening
// an outsider who verifies the ledger with nothing but the file and the documentation. Nothing of the
// product knows of it: the program is the installed one, the doors are those the README names.
package day

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// overlayEnv names a file for go install -overlay: how [TestBrokenGates] has the day lived with a broken gate.
const overlayEnv = "BAILEY_DAY_OVERLAY"

// begins stands in the log once the program is installed and the user has a project.
const begins = "the day begins"

// TestDay is the day with Claude Code.
func TestDay(t *testing.T) { live(t, hireClaude) }

// TestDayWithAnyClient is the same day with the protocol's own client in Claude's place.
func TestDayWithAnyClient(t *testing.T) { live(t, hireClient) }

func live(t *testing.T, hire func(*testing.T, *user) agent) {
	if testing.Short() {
		t.Skip("lives a whole day: runs without -short")
	}
	d := &day{t: t, u: newUser(t)}
	d.u.install(os.Getenv(overlayEnv))
	d.prepare()
	t.Log(begins)
	for _, hour := range []struct {
		name string
		goes func()
	}{
		{"an agent is hired and sees its tools", func() { d.agent = hire(t, d.u); d.tools() }},
		{"it reads the project's history", d.history},
		{"it is told what it got wrong", d.mistakes},
		{"it is kept from what it may not see", d.forbidden},
		{"a repository sets a trap", d.trapped},
		{"the user looks for themselves", d.byHand},
		{"the gateway is killed between calls", d.killedBetween},
		{"the gateway is killed in mid-call", d.killedWithin},
		{"the gateway is killed at any moment", d.killedAnywhere},
		{"the agent leaves and the receipts are read", d.evening},
		{"an outsider verifies", d.outsider},
	} {
		hour.goes()
		if t.Failed() {
			t.Fatalf("the day ended when %s", hour.name)
		}
	}
}

// day is what is known of it so far.
type day struct {
	t       *testing.T
	u       *user
	agent   agent
	key     string // the user's private key, which nobody may see
	attempt int    // each reading of the history asks for another number of commits: so the ledger tells them apart
	want    []string
	lost    map[string]bool // attempts whose result the gateway took with it
}

const keyBody = "bm9ib2R5IG1heSBzZWUgdGhpcyBsaW5lIG9mIGEga2V5IHRoYXQgb3BlbnMgbm90aGluZw"

// prepare gives the user a key, a project with history, and beside it what the project must not show.
func (d *day) prepare() {
	u := d.u
	d.key = filepath.Join(u.home, ".ssh", "id_ed25519")
	block := "-----BEGIN OPENSSH PRIVATE KEY-----\n" + keyBody + "\n-----END OPENSSH PRIVATE KEY-----\n"
	u.write(d.key, block)
	u.must(u.home, "git", "config", "--global", "user.name", "A Newcomer")
	u.must(u.home, "git", "config", "--global", "user.email", "newcomer@example.org")
	for _, dir := range []string{u.project, filepath.Join(u.home, "diary"), filepath.Join(u.project, "trap"), filepath.Join(u.project, "stuck")} {
		u.must(u.home, "git", "init", "-q", dir)
	}
	for i, title := range []string{"lay the first stone", "raise the wall", "hang the gate"} {
		u.write(filepath.Join(u.project, "plan"), strings.Repeat("stone\n", i+1))
		u.must(u.project, "git", "add", "plan")
		u.must(u.project, "git", "commit", "-qm", title)
	}
	u.write(filepath.Join(u.project, "deploy.pem"), block)
	u.must(u.project, "git", "add", "deploy.pem")
	u.must(u.project, "git", "commit", "-qm", "add a key by mistake")
	u.must(u.home, "git", "-C", "diary", "commit", "-q", "--allow-empty", "-m", "dear diary")
	u.must(u.project, "ln", "-s", "../diary", "shortcut")
	index := filepath.Join(u.project, "stuck", ".git", "index") // whoever reads this index waits for ever
	u.must(u.project, "mkfifo", index)
	d.lost = map[string]bool{}
}

func (d *day) tools() {
	got := d.agent.tools()
	for _, want := range []string{"git_branch-list", "git_diff", "git_log", "git_show", "git_status", "system_date", "system_echo"} {
		if !slices.Contains(got, want) {
			d.t.Errorf("the agent is offered %v, which lacks %s", got, want)
		}
	}
}

// allowed makes a call that must succeed.
func (d *day) allowed(tool string, input map[string]any, tells ...string) string {
	d.t.Helper()
	d.want = append(d.want, "ok")
	return d.expect(false, tool, input, tells...)
}

// refused makes a call that must not, and wants the model told why; outcome is what the receipt has to say.
func (d *day) refused(outcome, tool string, input map[string]any, tells ...string) {
	d.t.Helper()
	d.want = append(d.want, outcome)
	d.expect(true, tool, input, append(tells, "receipt: r-")...)
}

func (d *day) expect(bad bool, tool string, input map[string]any, tells ...string) string {
	d.t.Helper()
	got := d.agent.call(tool, input)
	if got.bad != bad {
		d.t.Errorf("%s %v: an error: %v, want %v: %s", tool, input, got.bad, bad, got.text)
	}
	for _, tell := range tells {
		if !strings.Contains(got.text, tell) {
			d.t.Errorf("%s %v does not tell %q: %s", tool, input, tell, got.text)
		}
	}
	if strings.Contains(got.text, keyBody) {
		d.t.Errorf("%s %v shows the key: %s", tool, input, got.text)
	}
	return got.text
}

func (d *day) history() {
	d.allowed("git_log", map[string]any{"repo": "."}, "lay the first stone", "raise the wall", "hang the gate")
	d.allowed("git_diff", map[string]any{"repo": d.u.project}, "no output")
	shown := d.allowed("git_show", map[string]any{"repo": ".", "rev": "HEAD"}, "add a key by mistake", "deploy.pem", "[REDACTED_")
	_, token, _ := strings.Cut(shown, "[REDACTED_")
	token, _, _ = strings.Cut(token, "]")
	d.allowed("system_echo", map[string]any{"message": "[REDACTED_" + token + "]"}, "REDACTED")
	d.allowed("git_status", map[string]any{"repo": ".", "path": "-----BEGIN OPENSSH PRIVATE KEY-----" + keyBody + "-----END OPENSSH PRIVATE KEY-----"})
}

func (d *day) mistakes() {
	d.refused("failed", "git_status", map[string]any{"repo": ".", "force": "yes"}, `"force" is not known`)
	d.refused("failed", "git_log", map[string]any{"repo": ".", "limit": "many"}, "/limit")
}

func (d *day) forbidden() {
	d.refused("denied", "git_status", map[string]any{"repo": filepath.Dir(d.key)}, " is outside the workspace "+d.u.project, "what to do: ")
	d.refused("denied", "git_log", map[string]any{"repo": "../diary"}, " is outside the workspace "+d.u.project)
	d.refused("denied", "git_log", map[string]any{"repo": "shortcut"}, " is outside the workspace "+d.u.project)
}

// trapped looks at a repository whose configuration makes git run something: a shell, and a program that
// needs none. (Git starts a filter without blanks or quotes by itself.) Without the gate both traps close.
func (d *day) trapped() {
	u, trap := d.u, filepath.Join(d.u.project, "trap")
	u.build("", trap, "./test/day/testdata/thief")
	u.write(filepath.Join(trap, "loot"), d.key+"\n")
	u.write(filepath.Join(trap, "bait"), "one\n")
	u.write(filepath.Join(trap, ".gitattributes"), "bait filter=steal\n")
	u.must(trap, "git", "add", "bait")
	u.write(filepath.Join(trap, "bait"), "two\n")
	u.must(trap, "git", "config", "filter.steal.required", "true")
	for _, t := range []struct{ clean, ran string }{
		{"did=ran; echo the shell $did; cat " + d.key + "; true", "the shell ran"},
		{"./thief", "the thief ran"},
	} {
		u.must(trap, "git", "config", "filter.steal.clean", t.clean)
		if out := u.must(trap, "git", "diff"); !strings.Contains(out, t.ran) || !strings.Contains(out, keyBody) {
			d.t.Fatalf("the trap %q is not live: %s", t.clean, out)
		}
		d.want = append(d.want, "failed")
		got := d.expect(true, "git_diff", map[string]any{"repo": "trap"}, "the tool ended with exit code 128", "receipt: r-")
		if strings.Contains(got, t.ran) {
			d.t.Errorf("the trap %q closed in the cage: %s", t.clean, got)
		}
	}
}

// byHand is the user at the command line: the same gateway, another door.
func (d *day) byHand() {
	u := d.u
	if out, code := u.does(u.project, "bailey", "run", "git.push", "-i", "repo=."); code != 126 || !strings.Contains(out, `no capability "git.push"`) {
		d.t.Errorf("git.push: exit code %d: %s", code, out)
	}
	plan := u.must(u.project, "bailey", "run", "git.log", "-i", "repo=.", "--dry-run", "--json")
	if !strings.Contains(plan, `"rules":[{"id":"look"`) || strings.Contains(plan, `"executed":true`) {
		d.t.Errorf("what a dry run says of the decision: %s", plan)
	}
	d.want = append(d.want, "failed", "ok")
}

// readHistory makes one attempt that the ledger can tell from every other, and reports whether a result came.
func (d *day) readHistory() bool {
	d.t.Helper()
	d.attempt++
	limit := 100 + d.attempt
	got := d.agent.call("git_log", map[string]any{"repo": ".", "limit": limit})
	if got.bad && strings.Contains(got.text, "the call may have run") {
		d.lost[fmt.Sprint(limit)] = true
		return false
	}
	if got.bad || !strings.Contains(got.text, "lay the first stone") {
		d.t.Errorf("attempt %d: %s", d.attempt, got.text)
	}
	return true
}

// persist reads the history until it comes: nobody repeats a call but the model, and it is told to look.
func (d *day) persist() {
	d.t.Helper()
	for range 5 {
		if d.readHistory() {
			return
		}
	}
	d.t.Error("no gateway answers")
}

func (d *day) killedBetween() {
	for range 3 {
		if !d.u.kill(syscall.SIGKILL) {
			d.t.Error("no gateway to kill")
		}
		d.persist()
	}
}

// killedWithin kills the gateway while a tool hangs. The caller learns it, the tool does not survive, and
// the receipt says what is known.
func (d *day) killedWithin() {
	for range 2 {
		before, killed := d.count(`"git.status"`), make(chan bool)
		go func() {
			await(d.t, "the hanging call's intent and tool", func() bool { return d.count(`"git.status"`) > before && d.gits() > 0 })
			killed <- d.u.kill(syscall.SIGKILL)
		}()
		d.want = append(d.want, "interrupted")
		d.expect(true, "git_status", map[string]any{"repo": "stuck"}, "the gateway ended in mid-call: the call may have run; bailey receipts list shows it")
		if !<-killed {
			d.t.Error("no gateway to kill")
		}
		await(d.t, "the end of what the gateway ran", func() bool { return d.gits() == 0 })
		d.persist()
	}
}

// killedAnywhere kills at other moments of a call, from its first byte to after its end.
func (d *day) killedAnywhere() {
	for _, after := range []time.Duration{0, 1, 2, 4, 6, 9, 14, 30} {
		killed := make(chan bool)
		go func() {
			time.Sleep(after * time.Millisecond)
			killed <- d.u.kill(syscall.SIGKILL)
		}()
		d.readHistory()
		<-killed
		d.persist()
	}
}

// count tells how often a text stands in the ledger.
func (d *day) count(text string) int {
	b, _ := os.ReadFile(filepath.Join(d.u.ledger(), "00000001.jsonl"))
	return strings.Count(string(b), text)
}

// gits tells how many programs named git are at work in the repository that hangs.
func (d *day) gits() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		line, _ := os.ReadFile(name)
		if stuck := filepath.Join(d.u.project, "stuck"); strings.HasPrefix(string(line), "git\x00") {
			if dir, err := os.Readlink(filepath.Join(filepath.Dir(name), "cwd")); err == nil && dir == stuck {
				n++
			}
		}
	}
	return n
}

// receipt is what the story reads of one, by the names that docs/operations.md gives.
type receipt struct {
	Intent struct {
		Receipt, Capability, Door, Agent, Session string
		Input                                     map[string]any
	}
	Outcome *struct {
		Outcome, Decision, Reason string
		Rules                     []struct{ ID string }
		Executed                  *bool
		StdoutBytes               int
		Cage                      *struct {
			Cage            string
			SandboxEnforced bool
			Layers          []string
		}
	}
}

// evening holds what the agent saw against what the ledger says: each call one intent and one outcome,
// none lost, none run twice.
func (d *day) evening() {
	d.persist()
	d.agent.leave()
	var list struct{ Receipts []struct{ ID string } }
	d.decode(d.u.must(d.u.project, "bailey", "receipts", "list", "--limit", "1000", "--json"), &list)
	slices.Reverse(list.Receipts)
	var told []string
	seen := map[string]int{}
	for _, row := range list.Receipts {
		var r receipt
		d.decode(d.u.must(d.u.project, "bailey", "receipts", "show", row.ID, "--json"), &r)
		if r.Outcome == nil {
			d.t.Errorf("%s %s is open", row.ID, r.Intent.Capability)
			continue
		}
		d.complete(row.ID, r)
		if limit := fmt.Sprint(r.Intent.Input["limit"]); strings.HasPrefix(limit, "1") {
			seen[limit]++
			if r.Outcome.Outcome != "ok" && !(d.lost[limit] && r.Outcome.Outcome == "interrupted") {
				d.t.Errorf("attempt %s ended as %s", limit, r.Outcome.Outcome)
			}
			continue
		}
		told = append(told, r.Outcome.Outcome)
	}
	for i := range d.attempt {
		limit := fmt.Sprint(101 + i)
		if n := seen[limit]; n > 1 || n == 0 && !d.lost[limit] {
			d.t.Errorf("attempt %s has %d receipts; its result was lost: %v", limit, n, d.lost[limit])
		}
	}
	if !slices.Equal(told, d.want) {
		d.t.Errorf("the receipts tell %v,\nthe day was   %v", told, d.want)
	}
}

// complete wants of a receipt what an auditor will ask: who, by which rule, held by what.
func (d *day) complete(id string, r receipt) {
	if r.Intent.Agent == "" || r.Intent.Door == "" || r.Intent.Session == "" || r.Intent.Receipt != id {
		d.t.Errorf("%s does not tell whose call it was: %+v", id, r.Intent)
	}
	o := r.Outcome
	if o.Executed != nil && *o.Executed {
		if o.Decision != "allow" || len(o.Rules) != 1 || o.Rules[0].ID != "look" {
			d.t.Errorf("%s ran, and does not tell by which rule: %s %v", id, o.Decision, o.Rules)
		}
		if o.Cage == nil || o.Cage.Cage != "full" || !o.Cage.SandboxEnforced || !slices.Contains(o.Cage.Layers, "netns") || !slices.Contains(o.Cage.Layers, "binds-noexec") {
			d.t.Errorf("%s ran, and does not tell in which cage: %+v", id, o.Cage)
		}
	}
	if said, ok := r.Intent.Input["message"].(string); ok && o.StdoutBytes > len(said)+2 {
		d.t.Errorf("%s: the tool was given more than the token %q: it wrote %d bytes", id, said, o.StdoutBytes)
	}
}

func (d *day) decode(text string, v any) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		d.t.Fatalf("%v in %s", err, text)
	}
}
