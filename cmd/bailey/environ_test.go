//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/localapi"
)

// TestGatewayEnvironment checks that the gateway does not inherit secrets from the environment of its first caller. It
// must keep the variables that it needs, for example PATH to find programs and SSH_AUTH_SOCK to hide the socket.
func TestGatewayEnvironment(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	bus := filepath.Join(filepath.Dir(y.repo), "agent.sock")
	y.env = append(y.env, "DB_PASSWORD=hunter2hunter", "GITHUB_TOKEN=hunter2hunter", "https_proxy=http://u:hunter2hunter@h", "XLC_ALL=hunter2hunter",
		"PATHS=hunter2hunter", "BAILEY_OPERATOR=hunter2hunter", "BAILEY_SESSION=hunter2hunter", "SSH_AUTH_SOCK="+bus, "LC_TIME=C", "TZ=UTC", "BAILEY_X=1")
	y.must(y.program, "capabilities", "list")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", y.gateway()))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.Trim(string(b), "\x00"), "\x00")
	if strings.Contains(string(b), "hunter2") {
		t.Errorf("the gateway has its starter's secrets: %q", got)
	}
	for _, pair := range []string{"SSH_AUTH_SOCK=" + bus, "LC_TIME=C", "TZ=UTC", "BAILEY_X=1", "BAILEY_HOME=" + string(y.home), "HOME=" + filepath.Join(filepath.Dir(y.repo), "me")} {
		if !slices.Contains(got, pair) {
			t.Errorf("the gateway lacks %s: %q", pair, got)
		}
	}
	cmd := y.command(y.program, "run", "git.status", "-i", "repo="+y.repo)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(pair string) bool { return strings.HasPrefix(pair, localapi.SessionVariable) })
	cmd.Dir = y.repo
	if out, err := cmd.CombinedOutput(); err != nil { // git is found on PATH
		t.Errorf("%v\n%s", err, out)
	}
}

// TestForegroundGatewayEnvironment checks that a gateway in the foreground keeps the complete environment, because it
// may lend values from it.
func TestForegroundGatewayEnvironment(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	cmd := y.command(y.program, "gateway")
	cmd.Env = append(slices.Clone(y.env), "LENT=hunter2hunter")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	y.await("the gateway", func() bool { // the socket is there a moment before anything listens on it
		c, err := net.Dial("unix", y.home.Socket())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", y.gateway()))
	if err != nil || !strings.Contains(string(b), "\x00LENT=hunter2hunter\x00") {
		t.Errorf("%v: %q", err, b)
	}
	y.must(y.program, "gateway", "stop")
	<-ended
}
