package broker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
	"bailey/internal/peer"
	"bailey/pack"

	"golang.org/x/sys/unix"
)

// crowd is a broker with a lease of every adapter, and what it must keep out of a cage.
type crowd struct {
	table   strings.Builder
	wants   []bailey.Want
	secrets []string
	hidden  []bailey.Want // leases whose value is replaced by a placeholder
}

// addCase adds an adapter with its issuer. Its files get a directory of their own.
func (c *crowd) addCase(t *testing.T, dir, name string, one issuerCase) {
	t.Helper()
	lease := strings.Trim(regexp.MustCompile(`[^a-z]+`).ReplaceAllString(name, "-"), "-")
	f := newFakeIssuer(t, one.handler)
	if err := os.Mkdir(filepath.Join(dir, lease), 0o700); err != nil {
		t.Fatal(err)
	}
	entry := strings.ReplaceAll(one.entry, "URL", f.URL)
	files := maps.Clone(one.files)
	files["ca.pem"] = f.authority()
	for file, text := range files {
		putPrivate(t, filepath.Join(dir, lease), file, text)
		entry = regexp.MustCompile(`: `+regexp.QuoteMeta(file)+`([,}])`).ReplaceAllString(entry, ": "+lease+"/"+file+"$1")
	}
	c.secrets = append(c.secrets, longLived(one.files)...)
	c.addLease(lease, entry, isLentAsFile(name))
}

func (c *crowd) addLease(lease, entry string, file bool) {
	fmt.Fprintf(&c.table, "  %s: {%s, scope: anything, approval: none}\n", lease, entry)
	c.wants = append(c.wants, bailey.Want{Name: lease, Env: "LENT_" + strings.ToUpper(strings.ReplaceAll(lease, "-", "_")), File: file})
}

// addHelper adds a lease from a helper program, which gets a file of the broker. The process that runs it is played here.
func (c *crowd) addHelper(t *testing.T, dir string) {
	t.Helper()
	const own = "the-own-token-of-the-helper"
	putPrivate(t, dir, "helper.token", own)
	l, err := peer.ListenFor(filepath.Join(dir, "helper.sock"), func(int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			got := ""
			for range 3 { // the job, its file, its input
				_, payload, _ := conn.ReadFrameWithin(MaxHelperJob)
				got += string(payload)
			}
			if strings.Contains(got, own) {
				conn.WriteJSON(HelperDone, HelperExit{})
				conn.WriteFrame(HelperValue, fmt.Appendf(nil, `{"value":%q,"expires":%q,"id":"t-1"}`, value+"-of-exec", time.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
			}
			conn.Close()
		}
	}()
	c.secrets = append(c.secrets, own)
	c.addLease("exec", fmt.Sprintf("exec: {socket: helper.sock, uid: %d, program: /bin/mint, sha256: %q, files: {OWN: helper.token}}",
		os.Geteuid(), strings.Repeat("0", 64)), false)
}

// addTokens adds leases whose values are long-lived: an npmrc from each source that has one. The tool gets placeholders.
func (c *crowd) addTokens(t *testing.T, dir string, sources map[string]string) {
	t.Helper()
	for name, entry := range sources {
		c.addLease(name, entry, true)
		w := &c.wants[len(c.wants)-1]
		w.Inject = &bailey.InjectWant{To: []string{"registry.npmjs.org:443"}, Headers: []string{"Authorization"}, Tokens: bailey.TokensNpm}
		c.hidden = append(c.hidden, *w)
		c.secrets = append(c.secrets, npmToken(name))
	}
}

func npmToken(name string) string { return "npm_longLivedTokenFrom" + name }

func npmFile(name string) string {
	return "//other.example/:_authToken=" + npmToken(name) + "-of-another\n//registry.npmjs.org/:_authToken=" + npmToken(name) + "\n"
}

// hideTokens replaces the values of the leases whose tokens the egress proxy inserts, as the gate does.
func (c *crowd) hideTokens(t *testing.T, lease *bailey.Lease) {
	t.Helper()
	for i, f := range lease.Files {
		for _, w := range c.hidden {
			if w.Env != f.Env {
				continue
			}
			inject, shown, err := pack.HideTokens(w, f.Value)
			if err != nil || len(inject) != 1 || !strings.Contains(f.Value.Reveal(), inject[0].Value.Reveal()) {
				t.Fatalf("%s: %v", w.Name, err)
			}
			lease.Files[i].Value = shown
		}
	}
}

// furnishCage makes the targets of the probes: places with files, sockets and a pipe, listeners, and a process of the
// tool's user. callers counts those who came out of the cage.
func furnishCage(t *testing.T, s *battery.Scene, callers *atomic.Int64) {
	t.Helper()
	root, err := os.MkdirTemp("/var/tmp", "bailey-battery-") // a cage's own /tmp covers that of the host
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	os.Chmod(root, 0o755)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	listen := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Logf("without %s %s: %v", network, address, err)
			return ""
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				callers.Add(1)
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	s.RO, s.RW = filepath.Join(root, "ro"), filepath.Join(root, "rw")
	for _, dir := range []string{s.RO, s.RW} {
		in := func(name string) string { return filepath.Join(dir, name) }
		os.Mkdir(dir, 0o777)
		for name, text := range map[string]string{battery.Note: strings.Repeat("text\n", 2000), battery.Tool: string(program),
			battery.Script: "#!" + self + " noop\n"} {
			ktest.Write(t, in(name), text)
			os.Chmod(in(name), 0o777)
		}
		os.Chmod(in(battery.Note), 0o666)
		packets, err := net.ListenPacket("unixgram", in(battery.Dgram))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { packets.Close() })
		if err := errors.Join(os.Symlink(s.Secret, in(battery.Link)), unix.Mkfifo(in(battery.Pipe), 0o666)); err != nil {
			t.Fatal(err)
		}
		listen("unix", in(battery.Stream))
		for _, name := range []string{battery.Stream, battery.Dgram, battery.Pipe, ""} {
			os.Chmod(in(name), 0o777)
		}
	}
	pipe, err := unix.Open(filepath.Join(s.RO, battery.Pipe), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe) })
	os.Mkdir(filepath.Join(s.RO, battery.Hidden), 0o755)
	s.TCP, s.TCP6, s.Abstract = listen("tcp", "127.0.0.1:0"), listen("tcp", "[::1]:0"), listen("unix", "@battery-"+s.Token)
}

// asExpected are answers of probes that say nothing about a credential: the lent files are below /run/bailey, a program that
// runs cannot be written, and this scene has no masked place.
var asExpected = map[string]string{"data/read-run": "/run holds bailey", "data/tool-write": "write: text file busy",
	"mount/attributes": ": no such file or directory"}

// haunt starts a process of the tool's user, and makes objects that are shared by number or name.
func haunt(t *testing.T, s *battery.Scene) {
	t.Helper()
	victim := exec.Command("/bin/sh", "-c", "read x")
	if _, err := victim.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	victim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		victim.SysProcAttr.Credential = &syscall.Credential{Uid: jail.DefaultHostUID, Gid: jail.DefaultHostUID}
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := victim.Process.Kill(); err != nil { // a probe may have ended it
			t.Error(err)
		}
		victim.Wait()
	})
	s.Victim, s.Key = victim.Process.Pid, 1<<30|os.Getpid()
	s.Planted = s.Key | 1<<29
	if id, err := unix.SysvShmGet(s.Key, 4096, unix.IPC_CREAT|0o666); err == nil {
		t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	}
	if id, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(s.Key), 1, unix.IPC_CREAT|0o666); e == 0 {
		t.Cleanup(func() { unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) })
	}
	if id, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(s.Key), unix.IPC_CREAT|0o666, 0); e == 0 {
		t.Cleanup(func() { unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0) })
	}
	s.Shm = "/dev/shm/battery-" + s.Token
	if err := os.WriteFile(s.Shm, []byte("shared"), 0o644); err == nil {
		t.Cleanup(func() { os.Remove(s.Shm) })
	}
}

// TestBatteryWithEveryLease runs the whole battery in a cage that has a lease of every adapter at once, and searches it for
// secrets that stay valid: in files, environments, memory, sockets and what else a tool can read.
func TestBatteryWithEveryLease(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "seccomp", "landlock")
	cages, err := jail.New(jail.Config{OnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cages.Close() })
	h := &house{t: t, dir: t.TempDir()}
	os.Chmod(h.dir, 0o700)
	h.config = Config{Dir: h.dir, Program: "test"}
	c := &crowd{}
	cases := issuerCases()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c.addCase(t, h.dir, name, cases[name])
	}
	c.addHelper(t, h.dir)
	putPrivate(t, h.dir, "npmrc", npmFile("file"))
	t.Setenv("BAILEY_TEST_NPMRC", npmFile("env"))
	sources := map[string]string{"file": "file: npmrc", "env": "env: BAILEY_TEST_NPMRC", "literal": fmt.Sprintf("literal: %q", npmFile("literal"))}
	if startKeyring(t) {
		storeItem(t, "npm", npmFile("keyring"))
		storeItem(t, "other", npmToken("of-another-item"))
		sources["keyring"] = "keyring: {service: bailey test, account: npm}"
		c.secrets = append(c.secrets, npmToken("of-another-item"))
	}
	c.addTokens(t, h.dir, sources)
	h.begin(t, table()+c.table.String())
	var lease bailey.Lease
	for some := range slices.Chunk(c.wants, maxWants) {
		l := h.lend(bailey.Loan{Receipt: bailey.NewReceiptID(), Capability: "git.push", Wants: some})
		defer l.Return()
		lease.Env, lease.Files = append(lease.Env, l.Env...), append(lease.Files, l.Files...)
	}
	c.hideTokens(t, &lease)
	scene := battery.Scene{Token: rand.Text() + rand.Text(), Canary: filepath.Join(h.dir, "canary"), Kind: "full", Proc: true, Maskless: true,
		Secret: filepath.Join(h.dir, "github", "own"), Home: "/home/bailey", Tmp: "/tmp", Pids: []int{os.Getpid()},
		Tasks: 64, Memory: 1 << 30}
	scene.HostName, _ = os.Hostname()
	for _, w := range c.wants {
		scene.Lent = append(scene.Lent, w.Env)
	}
	putPrivate(t, h.dir, "canary", scene.Token)
	var callers atomic.Int64
	furnishCage(t, &scene, &callers)
	haunt(t, &scene)
	ran := 0
	for line := range strings.Lines(cagedOutput(t, cages, lease, scene, "", "all")) {
		var r battery.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Held == "" && asExpected[r.Name] != r.Open+r.Odd {
			t.Errorf("%s", line)
		}
		ran++
	}
	want := 0
	for _, p := range battery.Probes() {
		if p.Shared(&scene) {
			want++
		}
	}
	if ran != want || ran < 150 || callers.Load() > 0 {
		t.Errorf("%d of %d probes ran, %d came out", ran, want, callers.Load())
	}
	c.searchLent(t, cages, lease, scene)
}

// searchLent searches the cage: the lent values of issuers are there, so that the search sees what it must, and no secret is.
func (c *crowd) searchLent(t *testing.T, cages *jail.Jail, lease bailey.Lease, scene battery.Scene) {
	t.Helper()
	stdin, _ := json.Marshal(append([]string{value, value + "-of-exec"}, c.secrets...))
	var found map[string]string
	if err := json.Unmarshal([]byte(cagedOutput(t, cages, lease, scene, string(stdin), "search")), &found); err != nil {
		t.Fatal(err)
	}
	if found[value] == "" || found[value+"-of-exec"] == "" || len(c.secrets) < 15 {
		t.Errorf("not live: of the lent values, %v was found; %d secrets", found, len(c.secrets))
	}
	delete(found, value)
	delete(found, value+"-of-exec")
	if len(found) > 0 {
		t.Errorf("in the cage are %v", found)
	}
}
