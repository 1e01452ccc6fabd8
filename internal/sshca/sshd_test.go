package sshca

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey/internal/ktest"
)

// server starts a real sshd for each connection to a loopback port. sshd runs as the user of the test, who can log in
// only to the own account if it is not root. The files are in private directories.
type server struct {
	dir, sshd, user string
	listener        net.Listener
	ended           chan struct{} // receives once for each connection
}

// startServer returns a server that trusts the keys in the file trusted and accepts a principal. The test is skipped if
// a program is missing.
func startServer(t *testing.T, trusted string, principal Principal) *server {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/usr/local/sbin")
	ktest.Require(t, "sshd", "ssh", "account")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: privateDir(t), user: me.Username, ended: make(chan struct{}, 16)}
	if s.sshd, err = exec.LookPath("sshd"); err != nil {
		t.Fatal(err)
	}
	if err := SaveKey(filepath.Join(s.dir, "host"), testKey(7)); err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(s.dir, "principals"), []byte(principal+"\n"), 0o644)
	putFile(t, filepath.Join(s.dir, "config"), fmt.Appendf(nil, `HostKey %[1]s/host
TrustedUserCAKeys %[2]s
AuthorizedPrincipalsFile %[1]s/principals
AuthorizedKeysFile none
AuthenticationMethods publickey
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
LogLevel DEBUG2
`, s.dir, trusted), 0o600)
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	known := fmt.Sprintf("[127.0.0.1]:%s %s", s.port(), getFile(t, filepath.Join(s.dir, "host.pub")))
	putFile(t, filepath.Join(s.dir, "known"), []byte(known), 0o600)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(t, conn.(*net.TCPConn)); s.ended <- struct{}{} })
		}
	})
	t.Cleanup(func() { s.listener.Close(); running.Wait() })
	return s
}

func (s *server) port() string { return fmt.Sprint(s.listener.Addr().(*net.TCPAddr).Port) }

// serve runs sshd as inetd(8) would. As root, sshd needs the directory /run/sshd; if it is missing, sshd gets a /run of
// its own.
func (s *server) serve(t *testing.T, conn *net.TCPConn) {
	file, err := conn.File()
	conn.Close()
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	args := []string{s.sshd, "-i", "-E", filepath.Join(s.dir, "log"), "-f", filepath.Join(s.dir, "config")}
	if _, err := os.Stat("/run/sshd"); err != nil && os.Geteuid() == 0 {
		script := `mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$0" "$@"`
		args = append([]string{"unshare", "-m", "sh", "-c", script}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout = file, file
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
}

// login runs ssh with the files of a credential, and returns its output and the log of sshd after the connection.
func (s *server) login(t *testing.T, c *Credential, args ...string) (out, log string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	putFile(t, filepath.Join(s.dir, "log"), nil, 0o600)
	cmd := exec.CommandContext(ctx, "ssh", append([]string{"-F", "none", "-i", c.KeyFile, "-p", s.port(), "-l", s.user,
		"-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=none",
		"-o", "UserKnownHostsFile=" + filepath.Join(s.dir, "known")}, args...)...)
	text, err := cmd.CombinedOutput()
	select {
	case <-s.ended:
	case <-ctx.Done():
		t.Fatalf("no connection ended: %s", text)
	}
	return string(text), string(getFile(t, filepath.Join(s.dir, "log"))), err
}

// credential returns a credential with files for a request to an authority.
func credential(t *testing.T, key []byte, now func() time.Time, target Target) *Credential {
	t.Helper()
	a, err := New(Config{Signer: ed25519.PrivateKey(key), Now: now, ReadOnlyShell: shellOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredentials(CredentialsConfig{Issuer: a, Now: now, Dir: privateDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	return get(t, c, target)
}

// shellOf writes a program that stands for the read-only shell.
func shellOf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shell")
	putFile(t, path, []byte("#!/bin/sh\necho \"forced: $SSH_ORIGINAL_COMMAND\"\n"), 0o755)
	return path
}

func shifted(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// TestSSHDAccepts checks that sshd accepts good certificates, logs their identity and serial, and grants nothing that
// the certificate does not have.
func TestSSHDAccepts(t *testing.T) {
	ktest.Long(t)
	store, key := createStore(t)
	trusted := filepath.Join(store.dir, "ssh_ca.trusted")
	box := startServer(t, trusted, Sandbox)
	sandbox := credential(t, key, time.Now, target("web"))
	out, log, err := box.login(t, sandbox, "127.0.0.1", "echo hello")
	if err != nil || out != "hello\n" {
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	want := fmt.Sprintf("ID %s (serial %d) CA ED25519 %s", sandbox.Certificate.Identity, sandbox.Certificate.Serial,
		sandbox.Certificate.Authority)
	if !strings.Contains(log, want) {
		t.Errorf("sshd does not log %q:\n%s", want, log)
	}
	// Where sshd is not root, it may fail to change the owner of the terminal, after it has allowed it.
	out, log, err = box.login(t, sandbox, "-tt", "127.0.0.1", "tty")
	allocated := err == nil && strings.Contains(out, "/dev/")
	if !strings.Contains(log, "Allocating pty.") || os.Geteuid() == 0 && !allocated {
		t.Errorf("no terminal for a sandbox: %v %s", err, out)
	}
	out, log, err = box.login(t, sandbox, "-W", "127.0.0.1:"+box.port(), "127.0.0.1")
	if err == nil || !strings.Contains(out, "administratively prohibited") {
		t.Errorf("a port is forwarded: %v %s\n%s", err, out, log)
	}
	out, _, err = box.login(t, sandbox, "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9", "127.0.0.1", "true")
	if err == nil || !strings.Contains(out, "remote port forwarding failed") {
		t.Errorf("a port is forwarded back: %v %s", err, out)
	}
	dialWithSigner(t, box, sandbox)

	host := startServer(t, trusted, ReadOnly)
	reader := target("web")
	reader.Principal, reader.SourceAddresses = ReadOnly, []string{"127.0.0.0/8", "2001:db8::/32"}
	readonly := credential(t, key, time.Now, reader)
	out, log, err = host.login(t, readonly, "127.0.0.1", "rm -rf x; id")
	if err != nil || out != "forced: rm -rf x; id\n" {
		t.Errorf("the read-only shell is not forced: %v %s\n%s", err, out, log)
	}
	out, _, err = host.login(t, readonly, "-tt", "127.0.0.1", "id")
	if err == nil || !strings.Contains(out, "PTY allocation request failed") {
		t.Errorf("a terminal on a source host: %v %s", err, out)
	}
}

func createStore(t *testing.T) (*KeyStore, []byte) {
	t.Helper()
	store := newStore(t, newClock(), filepath.Join(privateDir(t), "ssh_ca"))
	done(t)(store.Create())
	key, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	return store, key
}

// dialWithSigner logs in with the Go client and the signer of the credential.
func dialWithSigner(t *testing.T, s *server, c *Credential) {
	t.Helper()
	client, err := ssh.Dial("tcp", s.listener.Addr().String(), &ssh.ClientConfig{User: s.user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(c.Signer)},
		HostKeyCallback: ssh.FixedHostKey(publicOf(t, testKey(7).Public()))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { client.Close(); <-s.ended }()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.CombinedOutput("echo hello"); err != nil || string(out) != "hello\n" {
		t.Errorf("%v %s", err, out)
	}
}

// TestSSHDRefuses checks that sshd refuses each certificate that is not good now, here and for this account, with the
// reason in its log.
func TestSSHDRefuses(t *testing.T) {
	ktest.Long(t)
	store, key := createStore(t)
	s := startServer(t, filepath.Join(store.dir, "ssh_ca.trusted"), Sandbox)
	reader, elsewhere := target("web"), target("web")
	reader.Principal, elsewhere.SourceAddresses = ReadOnly, []string{"192.0.2.7"}
	for _, c := range []struct {
		name, says string
		credential *Credential
	}{
		{"expired", "Certificate invalid: expired", credential(t, key, shifted(-31*time.Minute), target("web"))},
		{"not yet valid", "invalid: not yet valid", credential(t, key, shifted(5*time.Minute), target("web"))},
		{"foreign authority", "is not listed in", credential(t, testKey(1), time.Now, target("web"))},
		{"wrong principal", "does not contain an authorized principal", credential(t, key, time.Now, reader)},
		{"other address", "not from a permitted source address", credential(t, key, time.Now, elsewhere)},
		{"no principal", "does not contain an authorized principal", withoutPrincipal(t, key)},
	} {
		out, log, err := s.login(t, c.credential, "127.0.0.1", "echo hello")
		if err == nil || !strings.Contains(out, "Permission denied (publickey)") || !strings.Contains(log, c.says) {
			t.Errorf("%s: %v %s\nthe log does not say %q:\n%s", c.name, err, out, c.says, log)
		}
	}
}

// withoutPrincipal returns a certificate as CVE-2024-7594 describes it. The authority never signs it, so the test does.
func withoutPrincipal(t *testing.T, key []byte) *Credential {
	t.Helper()
	c := credential(t, key, time.Now, target("web"))
	cert := *c.Certificate.SSH
	cert.ValidPrincipals = nil
	if err := cert.SignCert(sharedReader(nil), signerOf(t, key)); err != nil {
		t.Fatal(err)
	}
	putFile(t, c.CertificateFile, ssh.MarshalAuthorizedKey(&cert), 0o644)
	return c
}

func signerOf(t *testing.T, key ed25519.PrivateKey) ssh.Signer {
	t.Helper()
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// TestSSHDRotation logs in at each step of a rotation. sshd reads the list of trusted keys of the store.
func TestSSHDRotation(t *testing.T) {
	ktest.Long(t)
	store, key := createStore(t)
	s := startServer(t, filepath.Join(store.dir, "ssh_ca.trusted"), Sandbox)
	old := credential(t, key, time.Now, target("web"))
	wantLogin := func(step string, c *Credential, good bool) {
		t.Helper()
		out, log, err := s.login(t, c, "127.0.0.1", "echo hello")
		if (err == nil) != good || !good && !strings.Contains(log, "is not listed in") {
			t.Errorf("%s: %v %s\n%s", step, err, out, log)
		}
	}
	wantLogin("one key", old, true)
	done(t)(store.BeginRotation())
	wantLogin("the next key is staged", old, true)
	done(t)(store.SwitchKeys())
	next, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	current := credential(t, next, time.Now, target("web"))
	wantLogin("the old key is trusted", old, true)
	wantLogin("the next key signs", current, true)
	done(t)(store.EndRotation(true))
	wantLogin("the old key is not trusted", old, false)
	wantLogin("the next key remains", current, true)
}
