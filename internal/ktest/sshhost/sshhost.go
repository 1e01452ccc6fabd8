//go:build linux

// Package sshhost starts real SSH servers for tests. Each has mounts and processes of its own, with a private /etc, so
// that a test can change the accounts and the configuration of the host as on a machine.
package sshhost

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey/internal/ktest"
)

// Host is a running server.
type Host struct {
	Port    int
	HostKey ssh.PublicKey
	// Person is the key that may log in as root and as the account person.
	Person    ssh.Signer
	PersonKey string // its file
	// Config is an ssh configuration file in which the name of the host leads to it.
	Config string
	Name   string

	dir     string
	busybox string
	guest   bool // an emulated machine
	pid     int  // of the first process in the namespaces
}

// setup makes the private directories and becomes sshd. $1 is the directory of the host, $2 the port.
const setup = `set -e
mount --make-rprivate /
mkdir -p "$1/etc" "$1/bin"
cp -a /etc/. "$1/etc/"
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/sshd /run/lock
mount --bind "$1/bin" /usr/local/bin
rm -rf /etc/ssh/sshd_config.d /etc/ssh/ssh_host_*
mkdir -p /etc/ssh/sshd_config.d
cp "$1/sshd_config" /etc/ssh/sshd_config
useradd --system --no-create-home --home-dir / --shell /bin/sh person 2>/dev/null || true
if [ -n "$3" ]; then # BusyBox provides the programs, except those of sshd
  sed -i 's,/bin/bash$,/bin/sh,' /etc/passwd
  mkdir "$1/programs"
  cp "$3" "$1/programs/busybox"
  cp /usr/sbin/sshd "$1/programs/"
  for program in $("$3" --list); do ln -s busybox "$1/programs/$program" 2>/dev/null || true; done
  mount --bind "$1/programs" /usr/sbin
  mount --bind "$1/programs" /usr/bin
fi
exec /usr/sbin/sshd -D -e -p "$2"
`

// Start starts a host. It skips the test if it cannot.
func Start(t *testing.T, name string) *Host {
	t.Helper()
	return startHost(t, name, "")
}

// StartBusyBox starts a host on which BusyBox, a static program in the given file, provides all programs but sshd.
func StartBusyBox(t *testing.T, name, busybox string) *Host {
	t.Helper()
	return startHost(t, name, busybox)
}

func startHost(t *testing.T, name, busybox string) *Host {
	t.Helper()
	ktest.Require(t, "root", "ssh", "unshare", "nsenter")
	for _, program := range []string{"/usr/sbin/sshd", "/usr/sbin/useradd"} {
		if _, err := os.Stat(program); err != nil {
			ktest.Missing(t, filepath.Base(program), err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "sshhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &Host{Name: name, dir: dir, busybox: busybox}
	_, hostKey := h.newKey(t, "host_key")
	h.HostKey = hostKey.PublicKey()
	h.PersonKey, h.Person = h.newKey(t, "person")
	h.writeFile(t, "authorized", string(ssh.MarshalAuthorizedKey(h.Person.PublicKey())), 0o644)
	h.writeFile(t, "sshd_config", fmt.Sprintf(`Include /etc/ssh/sshd_config.d/*.conf
ListenAddress 127.0.0.1
HostKey %[1]s/host_key
AuthorizedKeysFile %[1]s/authorized
AuthenticationMethods publickey
PermitRootLogin yes
StrictModes no
UsePAM no
LogLevel VERBOSE
`, dir), 0o600)
	for attempt := range 5 {
		if h.startServer(t) {
			break
		}
		if attempt == 4 {
			t.Fatalf("sshd does not start: %s", h.Log(t))
		}
	}
	h.writeClientFiles(t, name)
	return h
}

// writeClientFiles writes what a client needs to reach the host.
func (h *Host) writeClientFiles(t *testing.T, name string) {
	t.Helper()
	known := fmt.Sprintf("[127.0.0.1]:%d %s", h.Port, ssh.MarshalAuthorizedKey(h.HostKey))
	h.writeFile(t, "known_hosts", known, 0o600)
	h.Config = h.writeFile(t, "ssh_config", h.Entry(name, "root", ""), 0o600)
}

// Entry returns a paragraph of an ssh configuration for this host.
func (h *Host) Entry(name, user, more string) string {
	return fmt.Sprintf(`Host %s
  HostName 127.0.0.1
  Port %d
  User %s
  IdentityFile %s/person
  IdentityAgent none
  UserKnownHostsFile %[4]s/known_hosts
  GlobalKnownHostsFile none
%s
`, name, h.Port, user, h.dir, more)
}

// newKey writes a private key and returns its file.
func (h *Host) newKey(t *testing.T, name string) (string, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return h.writeFile(t, name, string(pem.EncodeToMemory(block)), 0o600), signer
}

func (h *Host) writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(h.dir, name)
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// startServer starts sshd and reports whether it answers. Another process may take the port first.
func (h *Host) startServer(t *testing.T) bool {
	t.Helper()
	h.Port = freePort(t)
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", setup, "sshhost", h.dir, strconv.Itoa(h.Port), h.busybox)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		if strings.Contains(h.Log(t), "Server listening") {
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			h.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
			return err == nil
		}
	}
	return false
}

// Log returns the log of sshd.
func (h *Host) Log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Put writes a file of the host.
func (h *Host) Put(t *testing.T, file string, data []byte, mode os.FileMode) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/root%s", h.pid, file)
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// Sh runs a shell command on the host as root, and returns its output.
func (h *Host) Sh(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if h.guest {
		out, err := h.runSSH(ctx, line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return out
	}
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(h.pid), "-m", "-p", "sh", "-c", line).
		CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}
