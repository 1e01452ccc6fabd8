//go:build linux

package source

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// killedVariable holds the [killedJob] of a process that a test starts to kill it.
const killedVariable = "BAILEY_TEST_PREPARE"

// killedAtLogin is the stop at the login after the last step.
const killedAtLogin = "login"

// killedJob is a preparation that stops before a step and waits.
type killedJob struct {
	Config, Home, Shell, Stop string
	Key                       []byte // of the authority
}

// TestMain makes the test program also the process that prepares a host.
func TestMain(m *testing.M) {
	text := os.Getenv(killedVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var j killedJob
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.prepare(context.Background())
	}
	fmt.Println("ended", err)
	os.Exit(1)
}

// prepare prepares the host, and does not return from the stop.
func (j killedJob) prepare(ctx context.Context) error {
	wait := func() {
		fmt.Println("stopped")
		select {} // until the test kills this process
	}
	authority, err := sshca.New(sshca.Config{Signer: ed25519.NewKeyFromSeed(j.Key), Now: time.Now})
	if err != nil {
		return err
	}
	access, err := NewAccess(authority, &remote.Pool{Now: time.Now}, "ann")
	if err != nil {
		return err
	}
	r, err := remote.Resolver{Config: j.Config}.Route(ctx, "web")
	if err != nil {
		return err
	}
	login, _ := remote.PersonLogin(r)
	client, err := (remote.Dialer{}).Dial(ctx, r, login)
	if err != nil {
		return err
	}
	own, err := (&Registry{Dir: j.Home}).OwnCommands()
	if err != nil {
		return err
	}
	h := Host{Name: "web", SSHConfig: j.Config}
	p := &Preparation{Client: client, Host: h, Own: own, Journal: true, Trusted: ssh.MarshalAuthorizedKey(authority.PublicKey()),
		Shell: func(string) ([]byte, error) { return os.ReadFile(j.Shell) },
		Login: func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
			if j.Stop == killedAtLogin {
				wait()
			}
			return access.Status(ctx, h, pinned)
		},
		Confirm: func(_ context.Context, s Step) error {
			if strings.HasPrefix(s.Name, j.Stop) {
				wait()
			}
			return nil
		},
		Report: func(Step, string) {}}
	_, err = p.Run(ctx)
	return err
}

// killPreparation starts a preparation in a process of its own, and kills it at the stop.
func (b *ownBench) killPreparation(stop string) {
	b.t.Helper()
	shell, err := buildShell()
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(b.t.TempDir(), "shell")
	if err := os.WriteFile(file, shell, 0o700); err != nil {
		b.t.Fatal(err)
	}
	text, err := json.Marshal(killedJob{b.Config, b.registry.Dir, file, stop, b.key.Seed()})
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.CommandContext(b.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedVariable+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if line != "stopped\n" {
		b.t.Fatalf("%s: the preparation says %q", stop, line)
	}
}
