package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
)

func TestMain(m *testing.M) { os.Exit(ktest.WithPostgres(m)) }

// run runs the program to its end.
func run(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{stdout: &out, stderr: &errs, getenv: func(name string) string {
		return map[string]string{"BAILEY_SERVER_DIR": dir}[name]
	}}
	code = p.runProgram(t.Context(), args)
	return code, out.String(), errs.String()
}

// served is a running server.
type served struct {
	address string
	out     *lockedBuffer
	stop    func() int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// runServer starts a server and waits until it listens.
func runServer(t *testing.T, dir string, args ...string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan net.Addr, 1), make(chan int, 1)
	out := &lockedBuffer{}
	p := &program{stdout: out, stderr: out, ready: func(a net.Addr) { ready <- a },
		getenv: func(name string) string { return map[string]string{"BAILEY_SERVER_DIR": dir}[name] }}
	go func() { ended <- p.runProgram(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)) }()
	s := served{out: out, stop: sync.OnceValue(func() int { cancel(); return <-ended })}
	t.Cleanup(func() { s.stop() })
	select {
	case a := <-ready:
		s.address = a.String()
	case code := <-ended:
		ended <- code
		t.Fatalf("the server ended with %d: %s", code, out)
	}
	return s
}

var setupLink = regexp.MustCompile(`http://localhost:[0-9]+/setup\?token=\S+`)

// TestFirstAccount: with nothing configured, the link makes the first account, and the next start prints none.
func TestFirstAccount(t *testing.T) {
	t.Parallel()
	databases := map[string]string{"sqlite": "", "postgres": "x"}
	for kind, database := range databases {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			if database != "" {
				database = ktest.PostgresDatabase(t)
				if err := os.WriteFile(filepath.Join(dir, "server.yaml"), []byte("database: "+database+"\n"),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := runServer(t, dir)
			link, err := url.Parse(setupLink.FindString(s.out.String()))
			if err != nil || link.Host == "" {
				t.Fatalf("no link: %v: %s", err, s.out)
			}
			body, _ := json.Marshal(map[string]string{"token": link.Query().Get("token"), "name": "Ann",
				"email":    "ann@example.com",
				"password": "password of ann", "organisation": "Shop"})
			if status, text := post(t, s, link.Host, "/api/v1/setup", body); status != http.StatusOK {
				t.Fatalf("setup: %d %s", status, text)
			}
			if code := s.stop(); code != 0 {
				t.Errorf("the server ended with %d: %s", code, s.out)
			}
			again := runServer(t, dir)
			if strings.Contains(again.out.String(), "setup?token") {
				t.Errorf("the second start prints a link: %s", again.out)
			}
			login, _ := json.Marshal(map[string]string{"email": "ann@example.com", "password": "password of ann"})
			_, port, _ := net.SplitHostPort(again.address)
			if status, text := post(t, again, "localhost:"+port, "/api/v1/login", login); status != http.StatusOK {
				t.Errorf("login after a restart: %d %s", status, text)
			}
			again.stop()
			code, out, errs := run(t, dir, "doctor", "--json")
			var report struct{ OK bool }
			if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || !report.OK {
				t.Errorf("doctor: %d, %v: %s%s", code, err, out, errs)
			}
			checkModes(t, dir)
		})
	}
}

func post(t *testing.T, s served, host, path string, body []byte) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// checkModes: no file of the server can be read by others.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = fmt.Errorf("%s has the mode %v", name, info.Mode())
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestRefusedConfiguration(t *testing.T) {
	t.Parallel()
	for text, fault := range map[string]string{
		"listn: x\n":                                   `"listn"`,
		"listen: 1\n":                                  "listen",
		"public_url: example.com\n":                    "public_url",
		"public_url: https://u:p@example.com\n":        "public_url",
		"console_origin: console.example.com\n":        "console_origin",
		"console_origin: https://a.example/x\n":        "console_origin",
		"console_origin: http://console.example.com\n": "not a safe origin",
		"telemetry: {enable_anonymous_usage: maybe}\n": "enable_anonymous_usage",
		"telemetry: {on: true}\n":                      `"on"`,
		"trusted_proxies: [10.0.0.1]\n":                "not a network",
		"tls: {cert: a}\n":                             "cert and key",
		"tls: {cert: a, key: b}\n":                     "public_url is missing",
		"listen: 0.0.0.0:8440\n":                       "in clear",
		"listen: nonsense\n":                           "ADDRESS:PORT",
		"public_url: http://bailey.example.com\n":      "not that of a server for people",
		"database: mysql://root:hunter22@db/bailey\n":  "postgres",
		"listen: 127.0.0.1:0\nlisten: 127.0.0.1:1\n":   "twice",
		"{{{{{{{{\n":                                   "server.yaml",
		"database: /does/not/exist/at/all/server.db\n": "no such file",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "server.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"serve"}
		if !strings.Contains(text, "listen") {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		code, _, stderr := run(t, dir, args...)
		if code == 0 || !strings.Contains(stderr, fault) || strings.Contains(stderr, "hunter22") {
			t.Errorf("%q: exit code %d, %s", text, code, stderr)
		}
	}
	for _, args := range [][]string{{"fly"}, {"serve", "x"}, {"serve", "--json"}, {"serve", "--config",
		"/does/not/exist"}} {
		if code, _, stderr := run(t, t.TempDir(), args...); code != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestReadableConfiguration: a file that others may read is used with a warning, which names a password in it.
func TestReadableConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "server.yaml")
	if err := os.WriteFile(name, []byte("listen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if s := runServer(t, dir); !strings.Contains(s.out.String(), "other users may read") {
		t.Errorf("no warning: %s", s.out)
	}
	if err := os.WriteFile(name, []byte("database: postgres://bailey:hunter22@127.0.0.1:1/bailey\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, dir, "doctor")
	if code != exitRefused || !strings.Contains(stdout, "holds the password") || strings.Contains(stdout+stderr,
		"hunter22") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
