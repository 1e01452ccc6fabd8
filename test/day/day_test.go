//go:build linux

// Package day is an end-to-end scenario: a user with a new installation of Bailey, a project, an agent with a scripted
// model, a gateway that is killed often, and finally an outsider that verifies the ledger with only the file and the
// documentation. The product contains no code for this test: the program is the installed one, and the interfaces are
// those that the README names.
package day

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// overlayEnv names a file for go install -overlay. With it, [TestBrokenGates] runs the scenario with a broken gate.
const overlayEnv = "BAILEY_DAY_OVERLAY"

// hoursEnv lists the hours to run instead of all: those that must notice a broken gate, and earlier ones that they
// need.
const hoursEnv = "BAILEY_DAY_HOURS"

// begins is logged when the program is installed and the user has a project.
const begins = "the day begins"

// TestDay runs the scenario with Claude Code.
func TestDay(t *testing.T) { live(t, hireClaude) }

// TestDayWithAnyClient runs the same scenario with the client of the MCP SDK instead of Claude Code.
func TestDayWithAnyClient(t *testing.T) {
	ktest.Require(t, "account") // ssh-keygen needs one
	live(t, hireClient)
}

func live(t *testing.T, hire func(*testing.T, *user) agent) {
	if testing.Short() {
		t.Skip("lives a whole day: runs without -short")
	}
	d := &day{t: t, u: newUser(t)}
	d.hire = func() agent { return hire(t, d.u) }
	d.u.install(os.Getenv(overlayEnv))
	d.prepare()
	t.Log(begins)
	only := strings.Fields(os.Getenv(hoursEnv))
	for _, hour := range d.hours() {
		if len(only) > 0 && hour.id != "hired" && !slices.Contains(only, hour.id) {
			continue
		}
		hour.goes()
		if t.Failed() {
			t.Fatalf("the day ended when %s", hour.name)
		}
	}
}

// hour is a part of the scenario. A broken gate lists by id the parts that must notice it.
type hour struct {
	id, name string
	goes     func()
}

func (d *day) hours() []hour {
	return []hour{
		{"hired", "an agent is hired and sees its tools", func() { d.agent = d.hire(); d.tools() }},
		{"history", "it reads the project's history", d.history},
		{"hidden", "what it reads is redacted, and it works on with the tokens", d.hidden},
		{"mistakes", "it is told what it got wrong", d.mistakes},
		{"forbidden", "it is kept from what it may not see", d.forbidden},
		{"trapped", "a repository sets a trap", d.trapped},
		{"hooked", "tools of its own are asked about", d.hooked},
		{"byHand", "the user looks for themselves", d.byHand},
		{"rules", "the user writes rules, and stops everything for a while", d.rules},
		{"profiled", "the user says what is active", d.profiled},
		{"built", "it builds, tests and commits", d.built},
		{"asked", "a person is asked about a release", d.asked},
		{"looked", "it finds a fault on a host that it cannot change", d.looked},
		{"boxed", "it breaks machines that are there to be broken", d.boxed},
		{"walled", "an agent works inside the wall", d.walled},
		{"overHTTP", "another agent works over HTTP, for as long as its token counts", d.overHTTP},
		{"paste", "the user asks another model about a log", d.paste},
		{"keep", "a checkpoint is kept elsewhere", d.keep},
		{"killedBetween", "the gateway is killed between calls", d.killedBetween},
		{"killedWithin", "the gateway is killed in mid-call", d.killedWithin},
		{"killedAnywhere", "the gateway is killed at any moment", d.killedAnywhere},
		{"evening", "the agent leaves and the receipts are read", d.evening},
		{"outsider", "an outsider verifies", d.outsider},
	}
}

// day is the state of the scenario so far.
type day struct {
	t     *testing.T
	u     *user
	agent agent
	hire  func() agent
	key   string // the user's private key, which must stay secret
	// each reading of the history requests a different number of commits, so that the ledger can tell them apart
	attempt int
	want    []string
	lost    map[string]bool // attempts whose result was lost with the gateway
	log     string          // the public key of the log, as given to the outsider
	witness string          // the key of the outsider's witness
	first   string          // the receipt of the first call
	morning string          // an early checkpoint, as kept by the outsider
}

// Values in the project that the model must not learn.
const (
	serverAddress  = "10.20.30.40"
	serverPassword = "correct-Horse7battery"
)

const keyBody = "bm9ib2R5IG1heSBzZWUgdGhpcyBsaW5lIG9mIGEga2V5IHRoYXQgb3BlbnMgbm90aGluZw"

// prepare gives the user a key and a project with a history, and creates files next to it that must stay hidden.
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
	server := filepath.Join(u.project, serverAddress) // one checkout per server, named after it
	u.must(u.home, "git", "init", "-q", server)
	u.write(filepath.Join(server, ".env"), "DB_PASSWORD="+serverPassword+"\nDATABASE_URL=postgres://app:"+serverPassword+"@"+serverAddress+":5432/app\n")
	u.must(server, "git", "add", ".env")
	u.must(server, "git", "commit", "-qm", "deploy to host "+serverAddress)
	u.must(u.home, "git", "-C", "diary", "commit", "-q", "--allow-empty", "-m", "dear diary")
	u.must(u.project, "ln", "-s", "../diary", "shortcut")
	index := filepath.Join(u.project, "stuck", ".git", "index") // a process that reads this index blocks forever
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

// refused makes a call that must fail, and checks that the model is told why. outcome is the expected outcome in the
// receipt.
func (d *day) refused(outcome, tool string, input map[string]any, tells ...string) {
	d.t.Helper()
	d.want = append(d.want, outcome)
	d.expect(true, tool, input, append(tells, "receipt: r-")...)
}

func (d *day) expect(bad bool, tool string, input map[string]any, tells ...string) string {
	d.t.Helper()
	got := d.agent.call(tool, input)
	if got.Bad != bad {
		d.t.Errorf("%s %v: an error: %v, want %v: %s", tool, input, got.Bad, bad, got.Text)
	}
	for _, tell := range tells {
		if !strings.Contains(got.Text, tell) {
			d.t.Errorf("%s %v does not tell %q: %s", tool, input, tell, got.Text)
		}
	}
	for _, secret := range []string{keyBody, serverPassword, serverAddress, shopPassword} {
		if strings.Contains(got.Text, secret) {
			d.t.Errorf("%s %v shows %s: %s", tool, input, secret, got.Text)
		}
	}
	return got.Text
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

// hidden reads output that names a server and its password. The address becomes a token that opens the checkout of the
// server. The token of the password must stay a token, wherever the agent uses it.
func (d *day) hidden() {
	told := d.allowed("system_echo", map[string]any{"message": "deployed to host " + serverAddress}, "deployed to host [REDACTED_IPV4_1]")
	_, token, _ := strings.Cut(strings.TrimSpace(told), "host ")
	token, _, _ = strings.Cut(token, "]")
	token += "]"
	d.allowed("git_log", map[string]any{"repo": token}, "deploy to host "+token)
	d.allowed("git_show", map[string]any{"repo": d.u.project + "/" + token, "rev": "HEAD"}, "DB_PASSWORD=[REDACTED_PASSWORD_1]", "DATABASE_URL=[REDACTED_CONNECTION_STRING_1]")
	d.allowed("system_echo", map[string]any{"message": "[REDACTED_PASSWORD_1]"}, "[REDACTED__PASSWORD_1]")
	d.refused("failed", "git_log", map[string]any{"repo": "[REDACTED_PASSWORD_1]"}, "[REDACTED_PASSWORD_1]")
}

func (d *day) mistakes() {
	d.refused("failed", "git_status", map[string]any{"repo": ".", "force": "yes"}, `"force" is not known`)
	d.refused("failed", "git_log", map[string]any{"repo": ".", "limit": "many"}, "/limit")
}

func (d *day) forbidden() {
	d.refused("denied", "git_status", map[string]any{"repo": filepath.Dir(d.key)}, " is outside the workspace", "what to do: ")
	d.refused("denied", "git_log", map[string]any{"repo": "../diary"}, " is outside the workspace")
	d.refused("denied", "git_log", map[string]any{"repo": "shortcut"}, " is outside the workspace")
}

// trapped queries a repository whose configuration makes git run a program: first a shell, then a program that needs no
// shell. (Git starts a filter without blanks or quotes by itself.) Without the gate, both programs run.
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
		got := d.expect(true, "git_diff", map[string]any{"repo": "trap"}, "the tool exited with code 128", "receipt: r-")
		if strings.Contains(got, t.ran) {
			d.t.Errorf("the trap %q closed in the cage: %s", t.clean, got)
		}
	}
}

// byHand uses the same gateway from the command line.
func (d *day) byHand() {
	u := d.u
	if out, code := u.does(u.project, "bailey", "run", "git.nothing", "-i", "repo=."); code != 126 || !strings.Contains(out, `no capability "git.nothing"`) {
		d.t.Errorf("git.nothing: exit code %d: %s", code, out)
	}
	plan := u.must(u.project, "bailey", "run", "git.log", "-i", "repo=.", "--dry-run", "--json")
	if !strings.Contains(plan, `"rules":[{"id":"look"`) || strings.Contains(plan, `"executed":true`) {
		d.t.Errorf("what a dry run says of the decision: %s", plan)
	}
	d.want = append(d.want, "failed", "ok")
	var would struct{ Cage struct{ PlanDigest string } }
	var explained struct {
		PlanDigest string
		Plan       []struct{ Text string }
	}
	d.decode(plan, &would)
	d.decode(u.must(u.project, "bailey", "jail", "explain", "git.log", "-i", "repo=.", "--json"), &explained)
	if len(explained.Plan) < 20 || explained.PlanDigest == "" || explained.PlanDigest != would.Cage.PlanDigest {
		d.t.Errorf("the plan explained is %+v, the receipt's %q", explained, would.Cage.PlanDigest)
	}
	out, code := u.does(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "jail", "run", "--yes", "--ro", u.home, "--exec", "cat", "--", "sh", "-c", "cat "+d.key+" || cat plan")
	if code != 0 || !strings.Contains(out, "stone") || strings.Contains(out, keyBody) {
		d.t.Errorf("a cage of the user's own, around the whole home: exit code %d: %s", code, out)
	}
}

// paste redacts a log for a model that does not use Bailey, and restores the model's answer.
func (d *day) paste() {
	u := d.u
	const secret = "wXq7-Lm2vR9t"
	log := filepath.Join(u.home, "app.log")
	u.write(log, "app[7]: DB_PASSWORD="+secret+" at 10.4.5.6\napp[7]: refused by 10.4.5.6\n")
	clean := u.must(u.home, "sh", "-c", "bailey redact < app.log 2> said")
	if strings.Contains(clean, secret) || strings.Contains(clean, "10.4.5.6") || strings.Count(clean, "[REDACTED_IPV4_1]") != 2 {
		d.t.Errorf("what goes to the model: %s", clean)
	}
	back := "$(grep -o 's-[0-9a-z]*$' said)"
	if out, code := u.does(u.home, "sh", "-c", "echo '[REDACTED_PASSWORD_1]' | setsid -w bailey redact --restore --session "+back); code != 1 || strings.Contains(out, secret) {
		d.t.Errorf("restored for nobody: exit code %d: %s", code, out)
	}
	answer := u.must(u.home, "sh", "-c", "echo 'change [REDACTED_PASSWORD_1] on [REDACTED_IPV4_1]' | BAILEY_OPERATOR=1 bailey redact --restore --yes --session "+back+" 2> /dev/null")
	if answer != "change "+secret+" on 10.4.5.6\n" {
		d.t.Errorf("what comes back: %s", answer)
	}
}
