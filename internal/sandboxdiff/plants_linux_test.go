package sandboxdiff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bailey/internal/hostapply"
	"bailey/internal/ktest"
	"bailey/internal/sandboxdiff"
)

// plant is one change of a system and its name in a difference.
type plant struct{ script, kind, name string }

// oddNames are names of files and texts that mean something to a shell, to YAML or to Ansible.
var oddNames = []string{"plain", "with space", "it's", `a"b`, "{{ lookup('pipe', 'id') }}", "$HOME", "`id`", "-rf", "a\\nb", "käse",
	"#x: [1, 2]", "%s", "~", "new\nline", "tab\tstop", "{% raw %}", "!unsafe", "a;b|c&d"}

var oddTexts = []string{"one\ntwo\n", "no newline", "", " leading\n", "\ttab first\n", "{{ 1 + 1 }}\n", "{% set x = 1 %}\n", "$HOME `id` \\ $(id)\n",
	"BAILEY\nEOF\n", "key: [a, b]\n- x\n# no\n", "a\n\n\nb\n", "end\n\n\n", "\n", "'single' \"double\"\n", "tail \n  \n", "\x00\x01\xff binary",
	"crlf\r\n", "ünï\u2028cödé\n", "\ufeffbom\n", "{\"json\": true}\n", "[1, 2]\n", "true\n", "null\n", "---\n...\n", "%YAML 1.1\n", "a\u0085b\n"}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// sh quotes a word for the shell of a plant.
func sh(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shown is a path as a difference has it.
func shown(s string) string {
	if strings.ContainsAny(s, "\n\t") {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// printfText is a command that prints exactly s.
func printfText(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return "printf '" + b.String() + "'"
}

// tenPlants draws one plant of each kind.
func tenPlants(r *rand.Rand) []plant {
	n := fmt.Sprint(r.IntN(900) + 100)
	odd, text := pick(r, oddNames...), pick(r, oddTexts...)
	return []plant{
		pick(r, plant{"apt-get -q -y install greeter", "package", "greeter"},
			plant{"apt-get -q -y install oldtool=1.1", "package", "oldtool"},
			plant{"apt-get -q -y purge oldtool", "package", "oldtool"},
			plant{"apt-get -q -y remove oldtool", "package", "oldtool"}),
		pick(r, plant{"systemctl mask fstrim.timer", "service", "fstrim.timer"},
			plant{"systemctl disable e2scrub_all.timer", "service", "e2scrub_all.timer"},
			plant{"systemctl enable debug-shell.service", "service", "debug-shell.service"},
			plant{"printf '[Service]\\nExecStart=/bin/sleep 9\\n[Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/app" + n +
				".service; systemctl enable app" + n + ".service", "service", "app" + n + ".service"}),
		pick(r, plant{"useradd -m -s /bin/bash -c 'Dev " + n + "' dev" + n, "user", "dev" + n},
			plant{"useradd -r -M -d /nonexistent -s /usr/sbin/nologin svc" + n, "user", "svc" + n},
			plant{"usermod -aG adm,dialout -s /bin/sh worker", "user", "worker"},
			plant{"userdel worker", "user", "worker"},
			plant{"groupadd -g 4" + n + " team" + n, "group", "team" + n}),
		pick(r, plant{"mkdir -p /opt/app" + n + "; " + printfText(text) + " >/opt/app" + n + "/" + sh(odd), "file", shown("/opt/app" + n + "/" + odd)},
			plant{"head -c 5000 /dev/urandom >/usr/local/bin/tool; chmod 755 /usr/local/bin/tool", "file", "/usr/local/bin/tool"},
			plant{"ln -s " + sh("/srv/"+odd) + " /opt/link" + n, "file", "/opt/link" + n},
			plant{"mkdir -m 1777 /opt/drop" + n, "file", "/opt/drop" + n}),
		pick(r, plant{"chmod 640 /etc/fstab", "permission", "/etc/fstab"},
			plant{"chown worker:adm /srv/data/report", "permission", "/srv/data/report"},
			plant{"chmod 4711 /usr/bin/wc", "permission", "/usr/bin/wc"},
			plant{"chmod 2770 /srv/data; chgrp adm /srv/data; chmod 2770 /srv/data", "permission", "/srv/data"}),
		pick(r, plant{"echo '*/5 * * * * root /bin/true' >/etc/cron.d/job" + n, "cron", "/etc/cron.d/job" + n},
			plant{"printf '1 2 * * * /bin/true %%s\\n' | crontab -", "cron", "/var/spool/cron/crontabs/root"},
			plant{"printf '#!/bin/sh\\ntrue\\n' >/etc/cron.daily/d" + n + "; chmod 755 /etc/cron.daily/d" + n, "cron", "/etc/cron.daily/d" + n}),
		pick(r, plant{"echo 'vm.swappiness = 7' >/etc/sysctl.d/60-s" + n + ".conf", "sysctl", "/etc/sysctl.d/60-s" + n + ".conf"},
			plant{"echo 'net.ipv4.ip_forward=1' >>/etc/sysctl.conf", "sysctl", "/etc/sysctl.conf"}),
		{"echo '192.0.2." + n[:2] + " db" + n + ".internal' >>/etc/hosts", "hosts", "/etc/hosts"},
		pick(r, plant{"sed -i 's/port=80/port=8" + n + "/' /etc/app/app.conf", "config", "/etc/app/app.conf"},
			plant{printfText(text) + " >>/etc/ssh/sshd_config", "config", "/etc/ssh/sshd_config"},
			plant{"sed -i 's/^UMASK.*/UMASK 027/' /etc/login.defs; chmod 600 /etc/login.defs", "config", "/etc/login.defs"}),
		pick(r, plant{"rm /etc/issue.net", "deleted", "/etc/issue.net"}, plant{"rm -r /opt/old", "deleted", "/opt/old"},
			plant{"rm /usr/bin/factor", "deleted", "/usr/bin/factor"}, plant{"rm /opt/old/b", "deleted", "/opt/old/b"}),
	}
}

// fixedPlants are the ten of the documentation.
func fixedPlants() []plant {
	return []plant{
		{"apt-get -q -y install greeter", "package", "greeter"},
		{"systemctl mask fstrim.timer", "service", "fstrim.timer"},
		{"useradd -m -s /bin/bash -G adm dev", "user", "dev"},
		{"mkdir -p /opt/app/bin; printf '#!/bin/sh\\necho {{ hi }}\\n' >/opt/app/bin/run; chmod 755 /opt/app/bin/run", "file", "/opt/app/bin/run"},
		{"chmod 640 /etc/fstab", "permission", "/etc/fstab"},
		{"echo '*/5 * * * * root /opt/app/bin/run' >/etc/cron.d/app", "cron", "/etc/cron.d/app"},
		{"echo 'vm.swappiness = 7' >/etc/sysctl.d/60-app.conf", "sysctl", "/etc/sysctl.d/60-app.conf"},
		{"echo '192.0.2.7 db.internal' >>/etc/hosts", "hosts", "/etc/hosts"},
		{"sed -i 's/port=80/port=8080/' /etc/app/app.conf", "config", "/etc/app/app.conf"},
		{"rm /etc/issue.net", "deleted", "/etc/issue.net"},
	}
}

// TestPlanted plants ten changes in a Debian, and others drawn by a printed seed: the difference must name these and
// nothing else, and both exports must make a fresh clone equal to the changed system, also if they run twice.
func TestPlanted(t *testing.T) {
	ktest.Long(t)
	base, program := preparedRoot(t), guestProgram(t)
	before := base.inventory(program)
	t.Run("fixed", func(t *testing.T) { checkPlants(t, base, before, program, fixedPlants()) })
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("BAILEY_PLANT_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("BAILEY_PLANT_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	t.Run("drawn", func(t *testing.T) { checkPlants(t, base, before, program, tenPlants(r)) })
}

func checkPlants(t *testing.T, base *root, before *sandboxdiff.Inventory, program string, plants []plant) {
	changed := newRoot(t, base.above())
	script, want := "set -eu\n", []string(nil)
	r := rand.New(rand.NewPCG(uint64(len(plants)), 7))
	for _, i := range r.Perm(len(plants)) {
		script += plants[i].script + "\n"
		want = append(want, plants[i].kind+" "+plants[i].name)
	}
	changed.run(script)
	after := changed.inventory(program)
	d := sandboxdiff.Compare(before, after)
	var got []string
	for _, c := range d.Changes {
		got = append(got, string(c.Kind)+" "+c.Name)
		t.Log(c.Summary)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("named %q\nwant  %q\nof\n%s", got, want, script)
	}
	if len(d.Notes)+len(d.Omitted) > 0 {
		t.Errorf("notes %q, omitted %v", d.Notes, d.Omitted)
	}
	if d := sandboxdiff.Compare(before, before); !d.Empty() {
		t.Errorf("a system differs from itself: %+v", d.Changes)
	}
	t.Run("shell", func(t *testing.T) {
		clone := newRoot(t, base.above())
		for range 2 {
			clone.run(string(d.Shell()))
			checkEqual(t, after, clone.inventory(program))
		}
	})
	t.Run("ansible", func(t *testing.T) {
		clone := newRoot(t, base.above())
		clone.write("srv/playbook.yaml", d.Ansible())
		const play = "ansible-playbook -i localhost, -c local -e ansible_python_interpreter=/usr/bin/python3 /srv/playbook.yaml"
		out := clone.run(play)
		clone.run("rm /srv/playbook.yaml")
		if checkEqual(t, after, clone.inventory(program)); t.Failed() {
			t.Logf("%s\n%s", d.Ansible(), out)
		}
	})
}

// TestApplied lets the program of a prepared host apply both exports of the ten changes on a Debian, as root of its own
// namespaces, and reads its report of each task; then a playbook of which one task fails.
func TestApplied(t *testing.T) {
	ktest.Long(t)
	base, program := preparedRoot(t), guestProgram(t)
	before := base.inventory(program)
	changed := newRoot(t, base.above())
	script := "set -eu\n"
	for _, p := range fixedPlants() {
		script += p.script + "\n"
	}
	changed.run(script)
	after := changed.inventory(program)
	d := sandboxdiff.Compare(before, after)
	for kind, content := range map[string][]byte{"shell": d.Shell(), "ansible": d.Ansible()} {
		t.Run(kind, func(t *testing.T) {
			clone := newRoot(t, base.above())
			report := clone.applied(content)
			if !report.OK || report.Kind != kind || len(report.Changed) < 10 || len(report.Failed)+len(report.NotReached) > 0 {
				t.Errorf("%+v", report)
			}
			checkEqual(t, after, clone.inventory(program))
		})
	}
	const failing = "---\n- hosts: all\n  gather_facts: false\n  tasks:\n    - name: first\n      ansible.builtin.copy: {content: x, dest: /srv/x}\n" +
		"    - name: second\n      ansible.builtin.file: {path: /missing/file, state: file}\n    - name: third\n      ansible.builtin.command: touch /srv/y\n"
	report := newRoot(t, base.above()).applied([]byte(failing))
	if report.OK || !slices.Equal(report.Changed, []string{"first"}) || !slices.Equal(report.Failed, []string{"second"}) ||
		!slices.Equal(report.NotReached, []string{"third"}) || !strings.Contains(report.Output, "missing") {
		t.Errorf("%+v", report)
	}
}

// applied runs bailey-apply in the root as sshd would, and removes its traces.
func (r *root) applied(content []byte) (report hostapply.Report) {
	r.t.Helper()
	at := filepath.Join(r.t.TempDir(), hostapply.Name)
	build := exec.Command("go", "build", "-o", at, "bailey/cmd/bailey-apply")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(at)
	if err != nil {
		r.t.Fatal(err)
	}
	request := hostapply.Request{SHA256: hostapply.Digest(content), Host: hostapply.HostID([]byte("key")), Call: strings.Repeat("0a", 16),
		Until: time.Now().Add(time.Hour)}
	r.write("srv/apply", data)
	r.write("srv/content", content)
	out := r.run("set -eu\nuseradd --system --user-group --no-create-home --home-dir / --shell /srv/apply bailey-apply\n" +
		"mkdir /etc/bailey-apply; echo " + request.Host + " >/etc/bailey-apply/host\n" +
		"chown root:bailey-apply /srv/apply; chmod 4750 /srv/apply\n" +
		"setpriv --reuid bailey-apply --regid bailey-apply --clear-groups /srv/apply -c 'bailey-apply " + strings.Join(request.Options(), " ") +
		"' </srv/content || true\nuserdel bailey-apply; rm -r /etc/bailey-apply /var/lib/bailey-apply /srv/apply /srv/content\n")
	start := strings.Index(out, "{")
	if start < 0 || json.NewDecoder(strings.NewReader(out[start:])).Decode(&report) != nil {
		r.t.Fatalf("no report: %s", out)
	}
	return report
}

func checkEqual(t *testing.T, want, got *sandboxdiff.Inventory) {
	t.Helper()
	d := sandboxdiff.Compare(want, got)
	for _, c := range d.Changes {
		t.Errorf("differs: %s: %s\n%s", c.Kind, c.Summary, c.Diff)
	}
	if !d.Empty() && len(d.Changes) == 0 {
		t.Error("differs without a named change")
	}
}
