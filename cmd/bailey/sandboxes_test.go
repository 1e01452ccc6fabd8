//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	osuser "os/user"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/ktest/guestimage"
)

// othersBox makes a sandbox as another agent, and tries to reach it as the first one: by its id, by its name, and by each call
// that could change it.
const othersBox = `BAILEY_OPERATOR=1 bailey agent add codex --yes >added
export BAILEY_TOKEN=$(cat added)
bailey sandbox create debian --name theirs
id=$(bailey sandbox list | grep -o 'sb-[a-z2-7]*')
unset BAILEY_TOKEN
bailey sandbox list
for words in show destroy stop 'extend SB 1h' 'exec SB -- id' 'snapshot SB s' 'branch SB'; do
  case $words in *SB*) words=$(echo "$words" | sed "s/SB/$id/") ;; *) words="$words $id" ;; esac
  bailey sandbox $words 2>&1 | head -n 1
done
bailey sandbox show theirs 2>&1`

// callPack installs a pack whose calls have a machine of their own, and allows it. callSettings names their image.
const callPack = `mkdir -p "$HOME/apart" "$HOME/work" && cat >"$HOME/apart/pack.yaml" <<'END' && cd "$HOME/work" && echo here >mine &&
name: apart
version: 1.0.0
description: Tools that get a machine.
capabilities:
  - name: try
    description: Try to change the workspace.
    backend: {type: subprocess, command: sh, args: [-c, 'echo $(cat mine) $(id -u) $( (echo there >mine) 2>&1 )'], cwd: workspace}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: microvm
  - name: wait
    description: Wait.
    backend: {type: subprocess, command: sleep, args: ['10000'], cwd: workspace}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: microvm
END
export BAILEY_OPERATOR=1 && bailey pack install --dev "$HOME/apart" --yes && bailey policy init "$HOME/rules" &&
echo '@id("apart") permit (principal, action in [Action::"apart.try", Action::"apart.wait"], resource) when { context.cage == "microvm" };' >"$HOME/rules/apart.cedar" &&
bailey policy apply "$HOME/rules" --yes && bailey run apart.try`

// callKilled kills the gateway while a machine is made, gets its files, and runs the tool. The machine ends each time.
const callKilled = `cd "$HOME/work"; boxes="$HOME/.bailey/host/sandboxes"
for pause in 0 0.1 0.3 1; do
  bailey run apart.wait >/dev/null 2>&1 & call=$!
  until [ -n "$(ls "$boxes")" ]; do sleep 0.02; done
  sleep $pause; kill -9 "$(cat "$HOME/.bailey/ledger/lock")"; wait $call
  until [ -z "$(ls "$boxes")" ]; do sleep 0.02; done
done; echo killed 4 times, nothing is left`

// createKilled kills the gateway while it has a sandbox created. Afterwards the agent has it, or it does not exist.
const createKilled = `cd "$HOME/work"; boxes="$HOME/.bailey/host/sandboxes"
for pause in 0.05 0.1 0.2 0.5; do
  bailey sandbox create debian >/dev/null 2>&1 & call=$!
  sleep $pause; kill -9 "$(cat "$HOME/.bailey/ledger/lock")"; wait $call
  until [ "$(bailey sandbox list --json | grep -o '"id":"sb-[a-z2-7]*' | cut -c7- | sort)" = "$(ls "$boxes" | sort)" ]; do sleep 0.02; done
  for box in $(ls "$boxes"); do bailey sandbox destroy $box; done
done; echo killed 4 times, nothing is left`

const callSettings = `echo 'microvm: {image: debian}' >>"$HOME/.bailey/settings.yaml" && BAILEY_OPERATOR=1 bailey init --apply --yes; ` +
	`cat "$HOME/.bailey/settings.yaml"`

// sshServer installs the SSH server of this machine in a sandbox, and makes a copy of that, which has host keys of its own.
const sshServer = `set -e
tar -C / -chzf sshd.tgz usr/sbin/sshd $(ldd /usr/sbin/sshd | grep -o '/[^ ]*' | sort -u | sed 's,^/,,')
BAILEY_OPERATOR=1 bailey sandbox cp sshd.tgz web:/root/sshd.tgz --yes
bailey sandbox exec web -- sh -c 'mkdir -p /etc/ssh /run/sshd && tar -C / -xzf /root/sshd.tgz && rm /root/sshd.tgz
printf "root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n" >/etc/passwd'
bailey sandbox snapshot web installed && bailey sandbox create --snapshot installed --name login --json`

// sshLogin makes the authority, and logs in.
const sshLogin = `bailey ssh-ca init && BAILEY_OPERATOR=1 bailey sandbox ssh --yes login ` +
	`'echo "$(whoami) of $(hostname)"; id -u; exit 7'`

// sshAttack connects to the server of the sandbox with a key that has no certificate, and as a client that expects another
// host key.
const sshAttack = `export BAILEY_OPERATOR=1; ssh-keygen -qt ed25519 -N '' -f other
through='ProxyCommand=bailey sandbox ssh --channel --yes login'
ssh -F none -i other -o IdentitiesOnly=yes -o IdentityAgent=none -o "$through" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@x id 2>&1
echo "x $(cat other.pub)" >known
ssh -F none -i other -o IdentitiesOnly=yes -o IdentityAgent=none -o "$through" -o StrictHostKeyChecking=yes -o UserKnownHostsFile=known root@x id 2>&1
echo "@cert-authority x $(cat other.pub)" >known
ssh -F none -i other -o IdentitiesOnly=yes -o IdentityAgent=none -o "$through" -o StrictHostKeyChecking=yes -o UserKnownHostsFile=known -o HostKeyAlgorithms=ssh-ed25519-cert-v01@openssh.com root@x id 2>&1
rm -f other other.pub known sshd.tgz`

// boxUser returns a user whose home has the image debian.
func boxUser(t *testing.T) *user {
	t.Helper()
	u := newcomer(t)
	home := ""
	for _, pair := range u.env {
		if v, ok := strings.CutPrefix(pair, "HOME="); ok {
			home = filepath.Join(v, ".bailey")
		}
	}
	u.follow(t, step{words: "mkdir -m 700 " + home})
	guestimage.Put(t, home, "debian")
	person, err := osuser.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guestimage.DestroyAll(t, home, person.Username) })
	return u
}

// TestSandboxesGuide follows docs/sandboxes.md with real machines.
func TestSandboxesGuide(t *testing.T) {
	u := boxUser(t)
	u.walk(t, "docs/sandboxes.md")
	for _, s := range []step{
		{words: "bailey sandbox create debian --name web --json", prints: []string{`…"ok":true…"structured":{…"name":"web"…`}},
		{words: "bailey sandbox list --json", prints: []string{`…"sandboxes":[…`}},
		{words: "bailey sandbox show web --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox exec web --json -- id", prints: []string{`…"machine":{…"imageDigest":"…`}},
		{words: "echo hello | bailey sandbox exec web --stdin -- cat", prints: []string{"hello"}},
		{words: "bailey sandbox exec web --dir /etc --env A=b -- sh -c 'pwd; echo $A'", prints: []string{"/etc", "b"}},
		{words: "bailey sandbox exec web -- sh -c 'echo password=hunter2hunter'", prints: []string{"password=[REDACTED_PASSWORD_1]"}},
		{words: "bailey sandbox snapshot web kept --json", prints: []string{`…"name":"kept"…`}},
		{words: "bailey sandbox snapshots --json", prints: []string{`…"kept"…`}},
		{words: "bailey sandbox restore web kept --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox branch web --json", prints: []string{`…"sandboxes":[…`}},
		{words: "bailey sandbox pause web --json", prints: []string{`…"state":"paused"…`}},
		{words: "bailey sandbox resume web --json", prints: []string{`…"state":"running"…`}},
		{words: "bailey sandbox stop web --json", prints: []string{`…"state":"stopped"…`}},
		{words: "bailey sandbox start web --json", prints: []string{`…"state":"running"…`}},
		{words: "bailey sandbox extend web 48h --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox create none", exit: 126, prints: []string{"…there is no image none…"}},
		{words: "printf 'a\\0b' >f && BAILEY_OPERATOR=1 bailey sandbox cp f web:/tmp/f --yes --json", prints: []string{`…"size":3…`}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox cp web:/tmp/f g --yes && cmp f g && echo same", prints: []string{"same"}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox cp web:/tmp/f g --yes", exit: 1, prints: []string{"…is there already…"}},
		{words: "bailey sandbox cp f web:/tmp/f", exit: 1, prints: []string{"…needs a person at a terminal…"}},
		{words: "echo 'id -u; exit 4' | BAILEY_OPERATOR=1 bailey sandbox shell web --yes", exit: 4, prints: []string{"0"}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox shell web --yes --json -- true", prints: []string{`{"code":0}`}},
		{words: `grep -ho '"kind":"sandbox.enter"' "$HOME"/.bailey/ledger/*.jsonl`, prints: []string{`"kind":"sandbox.enter"`}},
		{words: othersBox, exit: 1, prints: []string{"…theirs…", "…not found: there is no sandbox sb-…", "…there is no sandbox theirs"}},
		{words: "bailey sandbox exec web -- touch /etc/changed"},
		{words: "bailey sandbox diff web --json", prints: []string{`…"changes":[{…/etc/changed…`}},
		{words: "bailey sandbox export web --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox verify web --shell --json", prints: []string{`…"verified":true…`}},
		{words: "echo true >none.sh && bailey sandbox verify web none.sh --shell", exit: 3, prints: []string{"still differs: file /etc/changed…", "…exited with code 1"}},
		{words: "bailey sandbox destroy web --json", prints: []string{`…"destroyed":"sb-…`}},
	} {
		u.follow(t, s)
	}
}

// TestSandboxLogin logs in to a sandbox with SSH, and tries to without a certificate.
func TestSandboxLogin(t *testing.T) {
	ktest.Require(t, "sshd", "ssh", "ssh-keygen")
	u := boxUser(t)
	for _, s := range []step{
		{words: "go install ./cmd/bailey ./cmd/bailey-host && bailey sandbox create debian --name web"},
		{words: "BAILEY_OPERATOR=1 bailey sandbox ssh --yes web", exit: 1, prints: []string{"…has no SSH server…"}},
		{words: sshServer, prints: []string{`…"name":"login"…`}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox ssh --yes login", exit: 1, prints: []string{"…bailey ssh-ca init…"}},
		{words: sshLogin, exit: 7, prints: []string{"root of login", "0"}},
		{words: "echo sent | BAILEY_OPERATOR=1 bailey sandbox ssh --yes --json login 'cat >/tmp/sent'", prints: []string{`{"code":0}`}},
		{words: "bailey sandbox exec login -- cat /tmp/sent", prints: []string{"sent"}},
		{words: sshAttack, prints: []string{"…Permission denied (publickey)…", "…Host key verification failed…", "…Host key verification failed…"}},
	} {
		u.follow(t, s)
	}
}

// networkRules let a policy decide about a network without a person.
const networkRules = `export BAILEY_OPERATOR=1; bailey policy init "$HOME/rules" && echo '
@id("sandbox-size-asks") @reason("large") forbid (principal, action == Action::"sandbox.create", resource) when { context.input has cpus && context.input.cpus > 60 };
@id("sandbox-network-asks") @reason("hidden") forbid (principal, action == Action::"sandbox.exec", resource) when { context.commands.contains("?") };' >"$HOME/rules/network.cedar" && bailey policy apply "$HOME/rules" --yes`

// TestSandboxNetwork gives a sandbox a network, with the gateway: a person must permit it, the places are those of the
// settings, and the receipts have the connections.
func TestSandboxNetwork(t *testing.T) {
	u := boxUser(t)
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello "+r.URL.Path) }))
	t.Cleanup(place.Close)
	_, port, _ := net.SplitHostPort(place.Listener.Addr().String())
	settings := `printf 'network:\n  endpoints:\n    - to: localhost:` + port + `\n      private: true\n      plain: true\n      for: [sandbox.create]\n' ` +
		`>>"$HOME/.bailey/settings.yaml" && BAILEY_OPERATOR=1 bailey init --apply --yes`
	for _, s := range []step{
		{words: "go install ./cmd/bailey ./cmd/bailey-host"},
		{words: "bailey sandbox create debian --name net --network names", exit: 1, prints: []string{"…open no places for the network…"}},
		{words: settings, prints: []string{"…localhost:" + port + "…"}},
		{words: "bailey sandbox create debian --name net --network names", exit: 2, prints: []string{"…has a network…"}},
		{words: networkRules},
		{words: "bailey sandbox create debian --name net --network names", prints: []string{"network  names", "reaches  localhost:" + port + " private plain"}},
		{words: "bailey sandbox exec net -- wget -qO- http://localhost:" + port + "/x", prints: []string{"hello /x"}},
		{words: "bailey sandbox exec net -- wget -qO- http://192.0.2.1/y", exit: 3, prints: []string{"…403 Forbidden…"}},
		{words: `bailey receipts list --json | tail -n 1; grep -h '"refused":1' "$HOME"/.bailey/ledger/*.jsonl | tail -n 1`, prints: []string{`…"egress":{…"target":"192.0.2.1:80"…`}},
		{words: "bailey sandbox destroy net", prints: []string{"destroyed …"}},
	} {
		u.follow(t, s)
	}
}

// TestCallMachines makes calls with isolation microvm through the gateway, and kills that.
func TestCallMachines(t *testing.T) {
	u := boxUser(t)
	for _, s := range []step{
		{words: "go install ./cmd/bailey ./cmd/bailey-host"},
		{words: callPack, exit: 1, prints: []string{"…settings name no image for its machine…"}},
		{words: callSettings, prints: []string{"…microvm…debian…"}},
		{words: "bailey run apart.try --json", prints: []string{`…here 65534 …Read-only file system…`}},
		{words: `grep -h '"cage":"microvm"' "$HOME"/.bailey/ledger/*.jsonl | grep -o '"machine":{.*' | tail -n 1`,
			prints: []string{`…"image":"debian","imageDigest":"…","accelerator":"emulated","machine":"microvm"…`}},
		{words: callKilled, prints: []string{"killed 4 times, nothing is left"}},
		{words: createKilled, prints: []string{"…killed 4 times, nothing is left"}},
		{words: "cat mine; bailey sandbox list --json", prints: []string{"here", `…"sandboxes":[]…`}},
	} {
		u.follow(t, s)
	}
}
