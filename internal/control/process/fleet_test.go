//go:build linux

package process

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bailey/internal/enrol"
	"bailey/internal/ktest"
)

// cable forwards connections to a server, until it is cut.
type cable struct {
	net.Listener
	mu     sync.Mutex
	to     string // "" refuses
	slow   time.Duration
	opened []net.Conn
}

func newCable(t *testing.T) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l}
	t.Cleanup(func() { l.Close(); c.plug("", true) })
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			go c.forward(a)
		}
	}()
	return c
}

// plug changes where new connections go, and resets or closes those that are open.
func (c *cable) plug(to string, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
	for _, conn := range c.opened {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
	c.opened = nil
}

func (c *cable) forward(a net.Conn) {
	c.mu.Lock()
	to := c.to
	c.mu.Unlock()
	b, err := net.Dial("tcp", to)
	if to == "" || err != nil {
		a.Close()
		return
	}
	c.mu.Lock()
	c.opened = append(c.opened, a, b)
	c.mu.Unlock()
	go c.pump(a, b)
	c.pump(b, a)
}

func (c *cable) pump(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		wait := c.slow
		c.mu.Unlock()
		time.Sleep(wait)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// team is a server, an enrolled gateway and the cable between them, all real processes.
type team struct {
	t                  *testing.T
	bin, dir           string
	cable              *cable
	server, gateway    *exec.Cmd
	http               http.Client
	api, org, host     string
	serverLog, gateLog *lockedBuffer
}

func (m *team) home() string { return filepath.Join(m.dir, "home") }

func (m *team) env() []string {
	return append(os.Environ(), "PATH="+m.bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "HOME="+m.dir,
		"BAILEY_HOME="+m.home(), "BAILEY_SERVER_DIR="+filepath.Join(m.dir, "server"), "BAILEY_OPERATOR=1", "XDG_STATE_HOME="+m.dir)
}

// start starts a program that the test ends by its pid.
func (m *team) start(log io.Writer, args ...string) *exec.Cmd {
	m.t.Helper()
	c := exec.Command(filepath.Join(m.bin, args[0]), args[1:]...)
	c.Env, c.Dir, c.Stdout, c.Stderr, c.WaitDelay = m.env(), m.dir, log, log, time.Second
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	return c
}

func crash(c *exec.Cmd) {
	if c != nil && c.Process != nil {
		c.Process.Kill()
		c.Wait()
	}
}

func (m *team) startServer() {
	m.t.Helper()
	m.serverLog = &lockedBuffer{}
	m.server = m.start(m.serverLog, "bailey-server", "serve", "--listen", "127.0.0.1:0")
	m.eventually("the server listens", func() bool {
		_, rest, ok := strings.Cut(m.serverLog.String(), "address=")
		if ok {
			m.cable.plug(strings.Fields(rest)[0], true)
		}
		return ok
	})
}

func (m *team) startGateway() {
	m.t.Helper()
	m.gateLog = &lockedBuffer{}
	m.gateway = m.start(m.gateLog, "bailey", "gateway")
}

func (m *team) eventually(what string, f func() bool) {
	m.t.Helper()
	for end := time.Now().Add(90 * time.Second); !f(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("not in time: %s\n%s\n%s", what, m.serverLog, m.gateLog)
		}
	}
}

// run runs a bailey command to its end.
func (m *team) run(stdin string, args ...string) (string, error) {
	c := exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "bailey"), args...)
	c.Env, c.Dir, c.Stdin = m.env(), m.dir, strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (m *team) ask(method, path string, body any) []byte {
	m.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(m.t.Context(), method, m.api+path, bytes.NewReader(text))
	if err != nil {
		m.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := m.http.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	out, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		m.t.Fatalf("%s %s: %d %s %v", method, path, answer.StatusCode, out, err)
	}
	return out
}

func newTeam(t *testing.T) *team { return newTeamOf(t, "gateway") }

// newTeamOf returns a team whose gateway is enrolled as one of a kind.
func newTeamOf(t *testing.T, kind string) *team {
	t.Helper()
	m := &team{t: t, bin: t.TempDir(), dir: t.TempDir(), cable: newCable(t), gateLog: &lockedBuffer{}}
	build := exec.Command("go", "build", "-o", m.bin+"/", "../../../cmd/bailey", "../../../cmd/bailey-server", "../../../cmd/bailey-link")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, port, _ := net.SplitHostPort(m.cable.Addr().String())
	public := "http://localhost:" + port
	if err := os.MkdirAll(filepath.Join(m.dir, "server"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "server", "server.yaml"), []byte("public_url: "+public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { crash(m.gateway); crash(m.server) })
	m.startServer()
	m.http.Jar, _ = cookiejar.New(nil)
	m.api = public + "/api/v1"
	_, token, _ := strings.Cut(m.serverLog.String(), "setup?token=")
	m.ask("POST", "/setup", map[string]string{"token": strings.Fields(token)[0], "name": "Ada", "email": "ada@example.com",
		"password": "correct horse battery", "organisation": "Shop"})
	var list struct{ Items []struct{ ID string } }
	json.Unmarshal(m.ask("GET", "/organisations", nil), &list)
	m.org = "/organisations/" + list.Items[0].ID
	var host struct{ ID, Secret string }
	json.Unmarshal(m.ask("POST", m.org+"/hosts", map[string]any{"name": "laptop", "kind": kind, "days": 1}), &host)
	m.host = host.ID
	if out, err := m.run(host.Secret+"\n", "enroll", public, "--kind", kind, "--yes", "--json"); err != nil || strings.Contains(out, host.Secret) {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

// calls makes calls; each has a receipt, because it fails after the gate has it.
func (m *team) calls(n int) (made int) {
	m.t.Helper()
	for range n {
		out, _ := m.run("", "run", "git.status")
		if strings.Contains(out, "receipt r-") {
			made++
		} else {
			m.t.Log(out)
		}
	}
	return made
}

func (m *team) status() enrol.Report {
	out, _ := m.run("", "enroll", "status", "--json")
	var r enrol.Report
	json.Unmarshal([]byte(out), &r)
	return r
}

func (m *team) connected() bool { s := m.status(); return s.Connected }

// receipts returns the numbers of all receipts that the server finds.
func (m *team) receipts() (seqs []uint64) {
	m.t.Helper()
	var page struct{ Items []struct{ Seq uint64 } }
	if err := json.Unmarshal(m.ask("GET", m.org+"/receipts?limit=1000", nil), &page); err != nil {
		m.t.Fatal(err)
	}
	for _, i := range page.Items {
		seqs = append(seqs, i.Seq)
	}
	slices.Sort(seqs)
	return seqs
}

// TestGatewayAndServer kills a real server, a real gateway and its connection in turn, and cuts, resets and slows the
// network, while calls are made. Afterwards the server has the gateway's ledger byte for byte.
func TestGatewayAndServer(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	m := newTeam(t)
	m.startGateway()
	m.eventually("the gateway connects", m.connected)
	made := 0
	for name, harm := range map[string]func(){
		"server killed":  func() { crash(m.server); made += m.calls(2); m.startServer() },
		"gateway killed": func() { crash(m.gateway); m.startGateway() },
		"link killed":    func() { killChild(t, m.gateway.Process.Pid) },
		"reset":          func() { m.cable.plug(m.cable.to, true) },
		"cut": func() {
			to := m.cable.to
			m.cable.plug("", false)
			made += m.calls(2)
			m.cable.plug(to, false)
		},
		"slow": func() { m.cable.mu.Lock(); m.cable.slow = 20 * time.Millisecond; m.cable.mu.Unlock() },
	} {
		made += m.calls(2)
		harm()
		made += m.calls(2)
		t.Log(name, made)
	}
	m.eventually("the gateway is connected again", m.connected)
	m.eventually("the receipts arrive", func() bool { return len(m.receipts()) >= made })
	seqs := m.receipts()
	if len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("a receipt is there twice: %v", seqs)
	}
	m.wantSameLedger()
	checkModes(t, filepath.Join(m.home(), "fleet"))
}

// wantSameLedger compares the export with the gateway's own files, and verifies it with bailey audit verify.
func (m *team) wantSameLedger() {
	m.t.Helper()
	dir := m.t.TempDir()
	r := tar.NewReader(bytes.NewReader(m.ask("GET", m.org+"/hosts/"+m.host+"/ledger", nil)))
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			m.t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(h.Name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), text, 0o600)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	copy, err := os.ReadFile(filepath.Join(dir, "ledger", "00000001.jsonl"))
	own, oerr := os.ReadFile(filepath.Join(m.home(), "ledger", "00000001.jsonl"))
	if err := errors.Join(err, oerr); err != nil || len(copy) < 1000 || !bytes.HasPrefix(own, copy) {
		m.t.Errorf("the copy of %d bytes is not the beginning of the ledger of %d: %v", len(copy), len(own), err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := m.run("", "audit", "verify", filepath.Join(dir, "ledger"), "--against", filepath.Join(dir, "checkpoint"),
		"--key", strings.TrimSpace(string(key)))
	if err != nil {
		m.t.Errorf("audit verify: %v: %s", err, out)
	}
}

// killChild kills the child process bailey-link of a process.
func killChild(t *testing.T, parent int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
		for _, name := range all {
			more, _ := os.ReadFile(name)
			text = append(append(text, ' '), more...)
		}
		for _, word := range strings.Fields(string(text)) {
			comm, _ := os.ReadFile("/proc/" + word + "/comm")
			if pid, err := strconv.Atoi(word); err == nil && strings.TrimSpace(string(comm)) == "bailey-link" {
				syscall.Kill(pid, syscall.SIGKILL)
				return
			}
		}
	}
	t.Error("the gateway has no bailey-link")
}
