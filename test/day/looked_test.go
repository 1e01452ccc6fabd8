//go:build linux

package day

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
)

// shopPassword is in the log of the host, and must not reach the model.
const shopPassword = "fk3-Rwq8zzLm0"

// looked has the agent find a fault on a real host with ten commands: a shop asks for its database at the wrong port. The
// eleventh, which would repair it, is refused. The person prepares the host before, and puts it in order afterwards.
func (d *day) looked() {
	if os.Geteuid() != 0 || ktest.Has("sshd") != nil {
		d.t.Log("no SSH server can be started: nothing is looked at today")
		return
	}
	u, h := d.u, d.breakHost()
	u.build("", filepath.Join(u.home, "go", "bin"), "./cmd/bailey-readonly-shell")
	u.must(u.home, "bailey", "ssh-ca", "init")
	u.must(u.home, "env", "BAILEY_OPERATOR=1", "bailey", "source", "add", "shop1", "--label", "env=test", "--yes")
	u.must(u.home, "env", "BAILEY_OPERATOR=1", "bailey", "source", "prepare", "shop1", "--yes")
	d.agent.leave() // it got its list of tools when it connected
	d.agent = d.hire()

	run := func(line string) map[string]any { return map[string]any{"host": "shop1", "command": line} }
	d.allowed("source_run", run("uptime"), "load average")
	d.allowed("source_run", run("tail -n 5 /etc/shop/shop.log | grep -v ready"), "connection refused", "DB_PASSWORD=[REDACTED_PASSWORD_")
	d.allowed("source_list_files", map[string]any{"host": "shop1", "path": "/etc/shop"}, "shop.conf", "database.conf")
	d.allowed("source_read_file", map[string]any{"host": "shop1", "path": "/etc/shop/shop.conf"}, "port=5433")
	d.allowed("source_run", run("stat -c '%U %a' /etc/shop/shop.conf"), "root 644")
	d.allowed("source_run", run("grep -rn port /etc/shop --include='*.conf'"), "database.conf:1:port=5432")
	d.allowed("source_run", run("ps aux | grep sshd"), "sshd")
	d.allowed("source_run", run("df -h /etc | tail -n 1"), "%")
	d.allowed("source_run", run("wc -l /etc/shop/shop.log"), "3 /etc/shop/shop.log")
	d.allowed("source_run", run("diff /etc/shop/shop.conf /etc/shop/database.conf || echo differs"), "differs")
	d.refused("denied", "source_run", run("systemctl restart shop"), "does not only read")
	if got := h.Sh(d.t, "cat /etc/shop/shop.conf"); got != "port=5433\n" {
		d.t.Errorf("the host has changed: %q", got)
	}
	u.must(u.home, "env", "BAILEY_OPERATOR=1", "bailey", "source", "unprepare", "shop1", "--yes")
	d.want = append(d.want, "denied")
	if out, code := u.does(u.project, "bailey", "source", "run", "shop1", "uptime"); code == 0 || !strings.Contains(out, "is not prepared") {
		d.t.Errorf("after unprepare: exit code %d: %s", code, out)
	}
}

// breakHost starts a host with a fault, to which the person can log in as root.
func (d *day) breakHost() *sshhost.Host {
	u, h := d.u, sshhost.Start(d.t, "shop1")
	h.Sh(d.t, "mkdir /etc/shop")
	for name, text := range map[string]string{
		"shop.conf": "port=5433\n", "database.conf": "port=5432\n",
		"shop.log": "shop: ready\nshop: DB_PASSWORD=" + shopPassword + "\nshop: port 5433 of the database: connection refused\n",
	} {
		h.Put(d.t, "/etc/shop/"+name, []byte(text), 0o644)
	}
	key, err := os.ReadFile(h.PersonKey)
	if err != nil {
		d.t.Fatal(err)
	}
	dir := filepath.Join(u.home, ".ssh")
	u.write(filepath.Join(dir, "shop"), string(key))
	u.write(filepath.Join(dir, "known_hosts"), fmt.Sprintf("[127.0.0.1]:%d %s", h.Port, ssh.MarshalAuthorizedKey(h.HostKey)))
	u.write(filepath.Join(dir, "config"), fmt.Sprintf("Host shop1\n  HostName 127.0.0.1\n  Port %d\n  User root\n  IdentityFile %s/shop\n  IdentitiesOnly yes\n  IdentityAgent none\n",
		h.Port, dir))
	return h
}
