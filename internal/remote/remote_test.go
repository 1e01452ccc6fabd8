//go:build linux

package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
)

func TestParseRoute(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/agent")
	t.Setenv("HOME", "/home/ann")
	r, err := parseRoute(
		"web",
		"host web\nuser ann\nhostname 192.0.2.7\nport 2222\nproxyjump a,b@c:22\nidentityfile ~/.ssh/id\n"+
			"userknownhostsfile ~/.ssh/known /k2\nhostkeyalias web.example\n",
	)
	want := Route{Name: "web", Host: "192.0.2.7", Port: 2222, User: "ann", Alias: "web.example", Agent: "/agent"}
	if err != nil || r.Host != want.Host || r.Port != want.Port || r.User != want.User || r.Alias != want.Alias || r.Agent != want.Agent ||
		strings.Join(r.Jumps, " ") != "a b@c:22" ||
		strings.Join(r.Identities, " ") != "/home/ann/.ssh/id" ||
		strings.Join(r.KnownHosts, " ") != "/home/ann/.ssh/known /k2" {
		t.Errorf("%+v, %v", r, err)
	}
	for text, says := range map[string]string{
		"user ann\nport 22\n":                                        "names no host",
		"user a\nhostname b\nport 0\n":                               "is not a number",
		"user a\nhostname b\nport 22\nproxycommand x\n":              "ProxyCommand",
		"user a\nhostname b\nport 22\nproxyjump 1,2,3,4,5,6,7,8,9\n": "more than 8 hosts",
	} {
		if _, err := parseRoute("web", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, name := range []string{"", "-oProxyCommand=id", "a b", "a\nb", "$(id)", "a;b", "ä", "a/b", strings.Repeat("a", 256)} {
		if _, err := (Resolver{}).Route(t.Context(), name); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// target returns the login of the person.
func target(t *testing.T, h *sshhost.Host, name string) Target {
	t.Helper()
	r, err := Resolver{Config: h.Config}.Route(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Key: name, Route: func(context.Context) (Route, error) { return r, nil }, Login: func(context.Context) (Login, time.Time, error) {
		login, _ := PersonLogin(r)
		return login, time.Time{}, nil
	}}
}

func TestRun(t *testing.T) {
	ktest.Long(t)
	h := sshhost.Start(t, "web")
	p := &Pool{Now: time.Now, Dialer: Dialer{Pause: time.Millisecond}}
	defer p.Close()
	to := target(t, h, "web")
	var out, log bytes.Buffer
	res, err := p.Run(t.Context(), to, Command{Line: "echo out; echo err >&2; exit 3", Stdout: &out, Stderr: &log})
	if err != nil || res != (Result{Sent: true, Code: 3}) || out.String() != "out\n" || log.String() != "err\n" {
		t.Errorf("%+v %v %q %q", res, err, out.String(), log.String())
	}
	// One connection serves all commands, also concurrent ones.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := p.Run(t.Context(), to, Command{Line: "true"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(h.Log(t), "Accepted publickey"); n != 1 {
		t.Errorf("%d logins", n)
	}
	// The connection breaks while no command runs: a new one is made.
	h.Sh(t, "pkill -f '[s]shd: root@notty'")
	if _, err := p.Run(t.Context(), to, Command{Line: "true"}); err != nil {
		t.Error(err)
	}
	// It breaks while a command runs: the command is not run again.
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		res, err := p.Run(
			t.Context(),
			to,
			Command{Line: "echo x >> /run/count; echo started; sleep 100", Stdout: onFirst(started)},
		)
		if !res.Sent || res.Code != -1 {
			t.Errorf("%+v", res)
		}
		done <- err
	}()
	<-started
	h.Sh(t, "pkill -f '[s]shd: root@notty'")
	if err := <-done; bailey.KindOf(err) != bailey.Unavailable ||
		!strings.Contains(err.Error(), "its result is not known") {
		t.Errorf("a broken connection: %v", err)
	}
	if got := h.Sh(t, "cat /run/count"); got != "x\n" {
		t.Errorf("the command ran %d times", strings.Count(got, "x"))
	}
}

// onFirst returns a writer that closes a channel at the first output.
func onFirst(c chan struct{}) io.Writer {
	var once sync.Once
	return writerFunc(func(b []byte) (int, error) { once.Do(func() { close(c) }); return len(b), nil })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestLimitsOfACommand(t *testing.T) {
	ktest.Long(t)
	h := sshhost.Start(t, "web")
	p := &Pool{Now: time.Now}
	defer p.Close()
	to := target(t, h, "web")
	var out bytes.Buffer
	res, err := p.Run(t.Context(), to, Command{Line: "cat /dev/zero", Stdout: &out, Output: 1000})
	if out.Len() != 1000 || err == nil || !strings.Contains(err.Error(), "exceeded 1000 bytes") {
		t.Errorf("%d bytes, %+v, %v", out.Len(), res, err)
	}
	res, err = p.Run(t.Context(), to, Command{Line: "sleep 100", Timeout: 100 * time.Millisecond})
	if !res.Sent || err == nil || !strings.Contains(err.Error(), "longer than 100ms") {
		t.Errorf("%+v, %v", res, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	go func() { <-started; cancel(errors.New("stop")) }()
	res, err = p.Run(ctx, to, Command{Line: "echo; sleep 100", Stdout: onFirst(started)})
	if !res.Sent || err == nil || err.Error() != "stop" {
		t.Errorf("%+v, %v", res, err)
	}
	p.CloseAll()
	if _, err := p.Run(t.Context(), to, Command{Line: "true"}); err != nil {
		t.Errorf("after CloseAll: %v", err)
	}
	p.Close()
	if _, err := p.Run(t.Context(), to, Command{Line: "true"}); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("after Close: %v", err)
	}
}

// TestExpiringLogin checks that a connection is replaced 30 s before its login expires.
func TestExpiringLogin(t *testing.T) {
	ktest.Long(t)
	h := sshhost.Start(t, "web")
	now := time.Now()
	p := &Pool{Now: func() time.Time { return now }}
	defer p.Close()
	to := target(t, h, "web")
	person := to.Login
	to.Login = func(ctx context.Context) (Login, time.Time, error) {
		login, _, err := person(ctx)
		return login, now.Add(time.Minute), err
	}
	for i, step := range []time.Duration{0, 29 * time.Second, 2 * time.Second, 0} {
		now = now.Add(step)
		if _, err := p.Run(t.Context(), to, Command{Line: "true"}); err != nil {
			t.Fatal(err)
		}
		want := 1
		if i >= 2 {
			want = 2
		}
		if n := strings.Count(h.Log(t), "Accepted publickey"); n != want {
			t.Errorf("step %d: %d logins, want %d", i, n, want)
		}
	}
}

// TestJump checks a host that is reached through another.
func TestJump(t *testing.T) {
	ktest.Long(t)
	bastion, h := sshhost.Start(t, "bastion"), sshhost.Start(t, "inner")
	config := filepath.Join(t.TempDir(), "config")
	text := bastion.Entry("bastion", "root", "") + h.Entry("inner", "root", "  ProxyJump bastion")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bastion.Config, h.Config = config, config
	p := &Pool{Now: time.Now}
	defer p.Close()
	var out bytes.Buffer
	if _, err := p.Run(t.Context(), target(t, h, "inner"), Command{Line: "echo $SSH_CONNECTION", Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(bastion.Log(t), "Accepted publickey") || !strings.Contains(h.Log(t), "Accepted publickey") {
		t.Errorf("%s", out.String())
	}
}

// TestHostKeys checks that a host is refused if its key is unknown, another than the known one, or not the pinned one.
func TestHostKeys(t *testing.T) {
	ktest.Long(t)
	h := sshhost.Start(t, "web")
	other := otherKey(t)
	d := Dialer{Pause: time.Millisecond}
	for says, change := range map[string]func(*Route, *Login){
		"":                                func(_ *Route, l *Login) { l.Pinned = []ssh.PublicKey{other.PublicKey(), h.HostKey} },
		"is not known":                    func(r *Route, _ *Login) { r.KnownHosts = []string{"/nonexistent"} },
		"the host key of web has changed": func(_ *Route, l *Login) { l.Pinned = []ssh.PublicKey{other.PublicKey()} },
		"is not the known one": func(r *Route, _ *Login) {
			file := filepath.Join(t.TempDir(), "known")
			address := net.JoinHostPort(r.Host, "0")
			line := "[" + r.Host + "]:" + strings.TrimPrefix(address, r.Host+":") + " "
			line = strings.Replace(line, ":0 ", ":"+portOf(r)+" ", 1) + string(ssh.MarshalAuthorizedKey(other.PublicKey()))
			if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			r.KnownHosts = []string{file}
		},
		"refused the login of person2": func(_ *Route, l *Login) { l.User = "person2" },
		"there is no SSH key":          func(r *Route, l *Login) { r.Identities = nil; *l, _ = PersonLogin(*r) },
	} {
		r, err := target(t, h, "web").Route(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		login, _ := PersonLogin(r)
		change(&r, &login)
		c, err := d.Dial(t.Context(), r, login)
		if err == nil {
			c.Close()
		}
		if says == "" && err != nil ||
			says != "" && (bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

func otherKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func portOf(r *Route) string {
	_, port, _ := strings.Cut(net.JoinHostPort("", strconv.Itoa(r.Port)), ":")
	return port
}

// TestAttempts checks that only failures of the network are tried again, five times in all.
func TestAttempts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			attempts++
			c.Close()
		}
	}()
	r := Route{Name: "web", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "a"}
	_, err = Dialer{
		Pause: time.Millisecond,
	}.Dial(
		t.Context(),
		r,
		Login{Pinned: []ssh.PublicKey{otherKey(t).PublicKey()},
			Signers: func() ([]ssh.Signer, error) { return nil, nil }},
	)
	l.Close()
	<-ended
	if attempts != connectAttempts || bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("%d attempts: %v", attempts, err)
	}
}
