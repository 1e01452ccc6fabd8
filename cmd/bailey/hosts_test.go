//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
)

// killedWithin kills the gateway in the middle of a command. The command ends on the host, its receipt says that it was
// interrupted, and nothing runs a second time.
const killedWithin = `bailey source run web1 'sleep 41' >said 2>&1 & run=$!
count() { pgrep -cxf '[a-z0-9/-]*sleep 41'; }
for i in $(seq 600); do [ "$(count)" = 0 ] || break; sleep 0.1; done
[ "$(count)" = 1 ] && echo one process
kill -9 "$(cat "$HOME/.bailey/ledger/lock")"
wait $run; cat said
bailey receipts list
for i in $(seq 600); do [ "$(count)" != 0 ] || break; sleep 0.1; done
[ "$(count)" = 0 ] && echo no process`

// ownCommands adds a command of the operator to a prepared host, and looks for its mark in the ledger.
const ownCommands = `umask 077
echo '{"commands":[{"program":"/usr/local/bin/appctl","stops":"purge","subcommands":["status"]}]}' >"$HOME/.bailey/source-commands.json"
BAILEY_OPERATOR=1 bailey source prepare web1 --yes
bailey source run web1 'appctl status'
grep -ho '"own-commands"' "$HOME"/.bailey/ledger/*.jsonl`

// appliedPlaybook prepares the host for playbooks, and applies one that a person approves. Before, and with the policy of a
// new home, the call is denied.
const appliedPlaybook = `go install ./cmd/bailey-apply
playbook='#!/bin/sh
touch /etc/applied-here'
bailey run source.apply -i host=web1 -i playbook="$playbook" -i reason=test 2>&1; echo exit $?
mkdir "$HOME/rules"
echo '@id("apply") permit (principal, action == Action::"source.apply", resource);' >"$HOME/rules/apply.cedar"
BAILEY_OPERATOR=1 bailey policy apply "$HOME/rules" --yes >/dev/null
bailey run source.apply -i host=web1 -i playbook="$playbook" -i reason=test 2>&1
BAILEY_OPERATOR=1 bailey source prepare web1 --apply --yes 2>&1
bailey run --wait source.apply -i host=web1 -i playbook="$playbook" -i reason=test >said 2>&1 & run=$!
for i in $(seq 600); do id=$(bailey approvals list | grep source.apply | cut -d" " -f1); [ -z "$id" ] || break; sleep 0.1; done
bailey approvals show "$id" --details
BAILEY_OPERATOR=1 bailey approve "$id" --yes
wait $run; echo exit $?; cat said
BAILEY_OPERATOR=1 bailey policy apply --starter --yes >/dev/null`

// installed gives the host, whose /var/lib is its own, a package database that knows every file below /etc but one.
const installed = `set -e
[ "$(stat -f -c %T /var/lib)" = tmpfs ]
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates
for package in bash dpkg; do
  printf 'Package: %s\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\nMaintainer: m\nDescription: d\n' $package
  [ $package = dpkg ] || echo
done >/var/lib/dpkg/status
{ echo Conffiles:; find /etc -xdev -type f -exec md5sum {} + | awk '{ print " " $2 " " $1 }'; echo; } >>/var/lib/dpkg/status
echo own >/etc/own.conf`

// imageFrom plans an image like the host, with a program in the place of mmdebstrap that prints what it is asked for.
const imageFrom = `cat >"$GOBIN/mmdebstrap" <<'END'
#!/bin/sh
printf '%s\n' "$@" | grep -o '^--include=.*' | tr '=,' '\n\n' | grep -x -e openssh-server -e bash
exit 25
END
chmod 755 "$GOBIN/mmdebstrap"
BAILEY_OPERATOR=1 bailey image from-source web1 --yes 2>&1
bailey receipts list --limit 1`

// askOncePerSession reads a production host over MCP. The question lists the commands of the line, and its answer holds for
// the session, also for another capability, and for no other session.
func askOncePerSession(t *testing.T, u *user, program string) {
	t.Helper()
	connect := func() *mcp.ClientSession {
		cmd := exec.Command(program, "serve")
		cmd.Dir, cmd.Env = u.dir, u.env
		s, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	look := func(s *mcp.ClientSession, want bailey.Status, tool string, args map[string]any) outcome {
		args["host"] = "web1"
		o, err := callTool(t.Context(), s, tool, args, 0)
		if err != nil || o.Status != want {
			t.Fatalf("%s: %+v %v, want %s", tool, o, err, want)
		}
		return o
	}
	first, run := connect(), map[string]any{"command": "ps aux | grep -c 'ss h'; appctl status"}
	o := look(first, bailey.Pending, "source_run", run)
	u.follow(t, step{words: "bailey approvals show " + o.ApprovalID, prints: []string{"holds     until the session ends: for every call about which only prod-hosts-ask asks",
		"commands", "…/usr/bin/ps aux", "…/usr/bin/grep -c 'ss h'", "…/usr/local/bin/appctl status   (added by the operator)"}})
	u.follow(t, step{words: "BAILEY_OPERATOR=1 bailey approve " + o.ApprovalID + " --yes"})
	look(first, bailey.OK, "source_run", run)
	look(first, bailey.OK, "source_run", map[string]any{"command": "uptime"})
	look(first, bailey.OK, "source_read_file", map[string]any{"path": "/etc/hostname"})
	look(connect(), bailey.Pending, "source_run", map[string]any{"command": "uptime"})
	u.follow(t, step{words: "BAILEY_OPERATOR=1 bailey source add web1 --label env=test --yes"})
	look(first, bailey.OK, "source_run", map[string]any{"command": "uptime"})
}

// TestHostsGuide follows docs/hosts.md with a real host.
func TestHostsGuide(t *testing.T) {
	ktest.Long(t)
	h := sshhost.Start(t, "web1")
	h.Put(t, "/usr/local/bin/appctl", []byte("#!/bin/sh\necho app \"$@\"\n"), 0o755)
	h.Sh(t, installed)
	u := newcomer(t)
	var home, bin string
	for _, pair := range u.env {
		if v, ok := strings.CutPrefix(pair, "HOME="); ok {
			home = v
		}
		if v, ok := strings.CutPrefix(pair, "GOBIN="); ok {
			bin = v
		}
	}
	config, err := os.ReadFile(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	// ssh takes the home from the account and not from HOME
	ssh := "#!/bin/sh\nexec /usr/bin/ssh -F " + home + "/.ssh/config \"$@\"\n"
	for name, text := range map[string]string{filepath.Join(home, ".ssh", "config"): string(config), filepath.Join(bin, "ssh"): ssh} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	u.walk(t, "docs/hosts.md")
	for _, s := range []step{
		{words: "bailey source discover --json", prints: []string{`…"name":"web1"…`}},
		{words: "BAILEY_OPERATOR=1 bailey source add web1 --label env=test --yes --json", prints: []string{`{"name":"web1"…`}},
		{words: "BAILEY_OPERATOR=1 bailey source prepare web1 --yes --json", prints: []string{`…"host_keys":["ssh-ed25519…`}},
		{words: "bailey source list --json", prints: []string{`…"name":"web1"…`}},
		{words: "bailey source show web1 --json", prints: []string{`…"labels":["env=test"]…`}},
		{words: "bailey source doctor web1 --json", prints: []string{`…"landlock_abi":…`}},
		{words: "bailey source read web1 /etc/hostname --json", prints: []string{`…"ok":true…`}},
		{words: "bailey source run --json web1 id", prints: []string{`…"ok":true…`}},
		{words: imageFrom, prints: []string{"…reading the packages", "…bash", "…mmdebstrap failed…", "…source.read_file…"}},
		{words: ownCommands, prints: []string{"2 of 7: add the commands of your own in /etc/bailey-readonly/commands.json: /usr/local/bin/appctl", "app status", "…own-commands…"}},
		{words: "bailey source run web1 'appctl purge'", exit: 1, prints: []string{"…the subcommand…is not in the read-only set"}},
		{words: "bailey source run env=test,web1 id -un", prints: []string{"== web1", "bailey-readonly"}},
		{words: "bailey source run env=none id -un", exit: 1, prints: []string{"…no prepared host has the label…"}},
		{words: "bailey source run web1,other id -un", exit: 126, prints: []string{"== web1", "bailey-readonly", "== other", "…is not a source host"}},
		{words: "bailey run source.request -i host=web1 -i command='for i in 1 2; do date; done' -i reason=test", exit: 2,
			prints: []string{"…a person must approve this line…"}},
		{words: appliedPlaybook, prints: []string{"exit 1", "…is not prepared for playbooks…", "…which bailey-apply alone may start…", "…sha256 …",
			"exit 0", `…"ok":true…`}},
		{words: killedWithin, prints: []string{"one process", "…source.run…interrupted…", "no process"}},
		{words: "BAILEY_OPERATOR=1 bailey source add web1 --label env=prod --yes"},
	} {
		u.follow(t, s)
	}
	askOncePerSession(t, u, filepath.Join(bin, "bailey"))
	for _, s := range []step{
		{words: "go install ./cmd/bailey-bench"},
		{words: "bailey bench source --host web1 -n 5 --json", prints: []string{`…"name":"exec","n":5,…"name":"connect","n":5,…`}},
		{words: "BAILEY_OPERATOR=1 bailey source unprepare web1 --yes --json", prints: []string{`…"name":"web1"…`}},
		{words: "BAILEY_OPERATOR=1 bailey source remove web1 --yes --json", prints: []string{`{"name":"web1"…`}},
	} {
		u.follow(t, s)
	}
}
