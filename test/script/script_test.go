//go:build linux

// Package script_test tests each command of the built program in scripts.
package script_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	_ "modernc.org/sqlite"

	"bailey/internal/ktest"
	"bailey/internal/ktest/touch"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// TestMain builds the programs that the scripts start. This test binary also acts as the program lesser-host.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // scripts mostly wait for gateways and users; a command-line flag overrides this
	testscript.Main(built{m}, map[string]func(){"lesser-host": lesserHost})
}

// built runs tests with Bailey's programs in PATH.
type built struct{ *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "bailey-script")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// On a busy machine a command may wait and print the reason. That line must not become part of its output.
	build := exec.Command("go", "build", "-ldflags=-X bailey/internal/cli.SaysWhy=no", "-o", dir+"/", "bailey/cmd/bailey",
		"bailey/cmd/bailey-bench", "bailey/cmd/bailey-broker", "bailey/cmd/bailey-shim", "bailey/cmd/bailey-guest")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	os.Chmod(dir, 0o755) // some scripts start the program as another user
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return b.M.Run()
}

// TestScripts runs every command with real cages and a real ledger. Each script has its own gateway.
func TestScripts(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git")
	if signal.Ignored(syscall.SIGINT) { // children inherit that, but scripts must be able to interrupt them
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"json": jsonField, "same": sameField, "kill9": signals(syscall.SIGKILL), "freeze": signals(syscall.SIGSTOP), "thaw": signals(syscall.SIGCONT), "wait-for": waitFor, "fifo": fifo, "torn": torn, "chown": chown, "exits": exits, "session": session, "forge": forge,
			"certificate": certificate, "page": page, "speaks": speaks, "card": insertCard, "receiver": startReceiver, "provider": startProvider,
		},
		Condition: func(cond string) (bool, error) {
			if name, ok := strings.CutPrefix(cond, "has:"); ok {
				return ktest.Has(name) == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "me")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("BAILEY_HOME", filepath.Join(env.WorkDir, "home"))
	for _, pair := range []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z"} {
		name, value, _ := strings.Cut(pair, "=")
		env.Setenv(name, value)
	}
	return nil
}

// json FILE PATH WANT compares one field of a JSON file, named for example a.b.0.c. If WANT is *, the field must only
// exist.
func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH WANT")
	}
	v := field(ts, args[0], args[1])
	got := fmt.Sprint(v)
	if match := v != nil && (args[2] == "*" || got == args[2]); match == neg {
		ts.Fatalf("%s is %q, want %s%q", args[1], got, map[bool]string{true: "not "}[neg], args[2])
	}
}

// same FILE PATH FILE PATH checks that both fields have the same value.
func sameField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: same FILE PATH FILE PATH")
	}
	a, b := field(ts, args[0], args[1]), field(ts, args[2], args[3])
	if match := a != nil && fmt.Sprint(a) == fmt.Sprint(b); match == neg {
		ts.Fatalf("%v and %v", a, b)
	}
}

// field returns one value of a JSON file, or nil if it does not exist.
func field(ts *testscript.TestScript, file, path string) any {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &v))
	for _, key := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			var i int
			if _, err := fmt.Sscan(key, &i); err != nil || i >= len(at) {
				ts.Fatalf("no element %s in %s", key, path)
			}
			v = at[i]
		default:
			v = nil
		}
	}
	return v
}

// forge executes SQL on the index of a home without a gateway and updates its checksum, as any process of the user can.
func forge(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs("home/index.db")
	db, err := sql.Open("sqlite", "file:"+name)
	ts.Check(err)
	result, err := db.Exec(args[0])
	ts.Check(err)
	n, err := result.RowsAffected()
	ts.Check(errors.Join(err, db.Close()))
	if n == 0 {
		ts.Fatalf("nothing was forged")
	}
	data, err := os.ReadFile(name)
	ts.Check(err)
	ts.Check(os.WriteFile(name+".sha256", fmt.Appendf(nil, "%x", sha256.Sum256(data)), 0o600))
}

// kill9, freeze and thaw send a signal to the gateway.
func signals(sig syscall.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		conn, err := peer.Dial(localapi.Home(ts.Getenv("BAILEY_HOME")).Socket())
		ts.Check(err)
		defer conn.Close()
		ts.Check(syscall.Kill(conn.PID, sig))
		for range 500 {
			if sig != syscall.SIGSTOP || isStopped(conn.PID) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		ts.Fatalf("process %d did not stop", conn.PID)
	}
}

// isStopped reports whether each thread of a process is stopped. A stop begins when the thread that got the signal is
// scheduled: other threads run until then.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, t := range threads {
		stat, _ := os.ReadFile(t)
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// wait-for FILE TEXT waits until a file contains a text.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for range 500 {
		if b, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(b), args[1]) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	ts.Fatalf("%s never held %q", args[0], args[1])
}

// fifo PATH replaces a file with a pipe, which blocks a process that opens it.
func fifo(ts *testscript.TestScript, _ bool, args []string) {
	os.Remove(ts.MkAbs(args[0]))
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o644))
}

// torn FILE appends half a line, as after a crash.
func torn(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|os.O_APPEND, 0)
	ts.Check(err)
	defer f.Close()
	_, err = f.WriteString(`{"hash":"00`)
	ts.Check(err)
}

// chown UID PATH changes the owner of a tree.
func chown(ts *testscript.TestScript, _ bool, args []string) {
	out, err := exec.Command("chown", "-R", args[0], ts.MkAbs(args[1])).CombinedOutput()
	if err != nil {
		ts.Fatalf("%s", out)
	}
}

// exits CODE COMMAND... runs a command that must exit with CODE.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || fmt.Sprint(exit.ExitCode()) != args[0] {
		ts.Fatalf("ended with %v, want exit code %s", err, args[0])
	}
}

// certificate CERT KEY writes a certificate that is valid only for this machine, and its key.
func certificate(ts *testscript.TestScript, _ bool, args []string) {
	public, private, err := ed25519.GenerateKey(nil)
	ts.Check(err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	ts.Check(err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	ts.Check(err)
	for i, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: signed}, {Type: "PRIVATE KEY", Bytes: key}} {
		ts.Check(os.WriteFile(ts.MkAbs(args[i]), pem.EncodeToMemory(block), 0o600))
	}
}

// page DOCUMENT FILE writes the only sh block of a document to a file.
func page(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile(filepath.Join("../../docs", args[0]))
	ts.Check(err)
	blocks := strings.Split(string(text), "```sh\n")
	if len(blocks) != 2 {
		ts.Fatalf("%s has %d blocks of sh, want one", args[0], len(blocks)-1)
	}
	block, _, _ := strings.Cut(blocks[1], "```")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(block), 0o600))
}

// session FILE prints the report on the session of the first receipt in a list.
func session(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("bailey", "receipts", "report", fmt.Sprint(field(ts, args[0], "receipts.0.session"))))
}

// card KIND NAME FLAGS adds a simulated security key to ssh-agent. NAME.pub is its public key.
func insertCard(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 || !slices.Contains(touch.Kinds, args[0]) {
		ts.Fatalf("usage: card KIND NAME FLAGS")
	}
	flags, err := strconv.ParseUint(args[2], 0, 8)
	ts.Check(err)
	c := touch.Card{Kind: args[0], Name: args[1], Flags: byte(flags)}
	ts.Check(os.WriteFile(ts.MkAbs(c.Name+".pub"), []byte(c.Line()+" "+c.Name+"\n"), 0o600))
	dir, err := os.MkdirTemp("", "card") // the address of a socket must be short
	ts.Check(err)
	l, err := net.Listen("unix", filepath.Join(dir, "agent"))
	ts.Check(err)
	ts.Defer(func() { l.Close(); os.RemoveAll(dir) })
	go c.Serve(l)
	ts.Setenv("SSH_AUTH_SOCK", filepath.Join(dir, "agent"))
}
