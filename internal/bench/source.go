package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/readonly"
	"bailey/internal/remote"
	"bailey/internal/server"
	"bailey/internal/source"
	"bailey/internal/sshca"
)

// hostLine is the command of the rows that run on a host: it starts one program, which ends at once.
const hostLine = "uname -r"

// signBurst is the number of certificates per turn, so that the first of a turn, whose code left the processor's cache,
// does not count alone.
const signBurst = 20

// checkedLines are the lines of the row check, as people write them.
var checkedLines = []string{
	"uptime", "df -h", "free -m", "ps aux", "cat /etc/os-release", "ls -la /var/log", "systemctl status nginx",
	"journalctl -u nginx -n 50 --no-pager", "tail -n 100 /var/log/syslog", "grep -i error /var/log/syslog | tail -n 20",
	"ss -tlnp", "ip addr show", "ps aux --sort=-%cpu | head -n 10", "du -sh /var/log", "find /var/log -name '*.log' -mmin -60",
	"cat /proc/loadavg && nproc", "stat /etc/passwd", "journalctl -p err --since '1 hour ago' | wc -l",
	"awk '{print $1}' /var/log/access.log | sort | uniq -c | sort -rn | head", "sed -n 1,20p /etc/hosts",
}

func (a *commands) benchSourceVerb() *cobra.Command {
	var n int
	var host string
	cmd := a.measureVerb(&cobra.Command{
		Use: "source", Short: "Compare calls of a source host with OpenSSH",
		Long: `Time the validator of command lines (row check); a certificate (issue) beside one Ed25519 signature (sign)
and ssh-keygen -s (keygen). With --host, a prepared source host: a call through the gate on a kept connection
(exec) beside the same login shell over a kept connection of OpenSSH (master) and two fsyncs (sync); and the
first command on a new connection (connect) beside ssh (ssh). The rows of each comparison alternate. The
calls go to a separate ledger, in a temporary directory on the disk of TMPDIR.`,
		Example: "  bailey bench source --host web1",
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if n < 1 {
			return nil, bailey.Invalid.New("-n must be at least 1", "leave it out for 200")
		}
		rows, err := benchCertificates(ctx, n)
		if err != nil {
			return nil, err
		}
		some, err := benchHost(ctx, host, n)
		return append(rows, some...), err
	})
	cmd.Flags().IntVarP(&n, "n", "n", 200, "number of operations of each row")
	cmd.Flags().StringVar(&host, "host", "", "a prepared source `host` for the rows exec and connect")
	return cmd
}

// benchCertificates measures what needs no host.
func benchCertificates(ctx context.Context, n int) ([]Row, error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	key, err := sshca.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	authority, err := sshca.New(sshca.Config{Signer: key, Now: time.Now})
	if err != nil {
		return nil, err
	}
	public, err := ssh.NewPublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	request := sshca.Request{Key: public, Principal: sshca.ReadOnly,
		Identity: sshca.Identity{User: "bench", VM: "host", Sandbox: "source"}}
	sample, err := authority.Issue(ctx, request)
	if err != nil {
		return nil, err
	}
	signed := sample.SSH.Marshal()
	keygen, missing := newKeygen(dir, key)
	times := map[string][]time.Duration{}
	for range n {
		for _, line := range checkedLines {
			if err := recordTime(times, "check", func() error { return acceptLine(line) }); err != nil {
				return nil, err
			}
		}
		err := ctx.Err()
		for range signBurst {
			err = errors.Join(err,
				recordTime(times, "sign", func() error { ed25519.Sign(key, signed); return nil }),
				recordTime(times, "issue", func() error { _, err := authority.Issue(ctx, request); return err }))
		}
		if err == nil && missing == nil {
			err = recordTime(times, "keygen", func() error { return keygen(ctx) })
		}
		if err != nil {
			return nil, err
		}
	}
	sign, issue := newRow("sign", times["sign"]), newRow("issue", times["issue"])
	issue.Facts = map[string]float64{"certificates_per_s": 1e6 / issue.P50}
	rows := []Row{newRow("check", times["check"]), sign, compareTimes(issue, sign, 1.5)}
	if missing != nil {
		return append(rows, Row{Name: "keygen", Note: missing.Error()}), nil
	}
	beside := newRow("keygen", times["keygen"])
	return append(rows, beside, compareTimes(issue, beside, 0)), nil
}

// compareTimes returns r with its median compared with that of another row.
func compareTimes(r, other Row, limit float64) Row {
	return r.comparedTo(other.Name, r.P50, other.P50, limit)
}

func acceptLine(line string) error {
	if v := readonly.Check(line, readonly.Options{}); !v.Accepted() {
		return bailey.Internal.Errorf("", "the line %q of the benchmark is refused: %s", line, v.Reason)
	}
	return nil
}

// newKeygen returns a function that lets ssh-keygen sign a certificate of the same kind, or the reason why it cannot.
func newKeygen(dir string, key ed25519.PrivateKey) (func(context.Context) error, error) {
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		return nil, err
	}
	ca, user := filepath.Join(dir, "ca"), filepath.Join(dir, "user.pub")
	if err := sshca.SaveKey(ca, key); err != nil {
		return nil, err
	}
	public, err := ssh.NewPublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(user, ssh.MarshalAuthorizedKey(public), 0o600); err != nil {
		return nil, err
	}
	sign := func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, program, "-q", "-s", ca, "-I", "bench", "-n", string(sshca.ReadOnly), "-V", "-1m:+30m",
			"-O", "clear", "-O", "force-command="+sshca.DefaultShell, user).
			CombinedOutput()
		if err != nil {
			return bailey.Unavailable.Wrap(err, "ssh-keygen cannot sign: "+strings.TrimSpace(string(out)), "")
		}
		return nil
	}
	return sign, sign(context.Background())
}

// hostBench has two ways to one host: through Bailey, and by ssh with a certificate of the same authority.
type hostBench struct {
	host    source.Host
	key     ed25519.PrivateKey
	dir     string
	gateway *server.Server
	disk    *rawFile
	ssh     []string // the arguments of ssh before the command
	times   map[string][]time.Duration
}

// benchHost measures calls of a prepared host. Without a host, its rows say that it is missing.
func benchHost(ctx context.Context, name string, n int) ([]Row, error) {
	if name == "" {
		const why = "it needs a prepared source host: give --host NAME"
		return []Row{{Name: "exec", Note: why}, {Name: "connect", Note: why}}, nil
	}
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &hostBench{dir: dir, times: map[string][]time.Duration{}}
	if err := b.copyHost(name); err != nil {
		return nil, err
	}
	if err := b.writeLogin(ctx); err != nil {
		return nil, err
	}
	b.gateway = &server.Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Bare: jail.Bare}
	defer b.gateway.Close()
	if _, err := b.gateway.NewGate(localapi.Home(dir), nil); err != nil {
		return nil, err
	}
	if b.disk, err = newRawFile(dir); err != nil {
		return nil, err
	}
	defer b.disk.Close()
	defer b.endMaster()
	return b.measureRows(ctx, n)
}

// measureRows runs all ways in turn.
func (b *hostBench) measureRows(ctx context.Context, n int) ([]Row, error) {
	master := []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", "ControlPath=" + b.controlPath()}
	for i := range n + 1 { // the first turn opens the kept connections
		err := errors.Join(
			recordTime(b.times, "exec", func() error { return b.callGate(ctx) }),
			recordTime(b.times, "master", func() error { return b.runSSH(ctx, master...) }),
			recordTime(b.times, "sync", b.syncTwice),
			recordTime(b.times, "connect", func() error { return b.callAnew(ctx) }),
			recordTime(b.times, "ssh", func() error { return b.runSSH(ctx, "-o", "ControlPath=none") }), ctx.Err())
		if err != nil {
			return nil, err
		}
		if i == 0 {
			clear(b.times)
		}
	}
	row := func(name string) Row { return newRow(name, b.times[name]) }
	call, master1, sync, connect, plain := row("exec"), row("master"), row("sync"), row("connect"), row("ssh")
	return []Row{master1, sync, call.comparedTo("master + sync", call.P50, master1.P50+sync.P50, 1.3),
		plain, compareTimes(connect, plain, 1.1)}, nil
}

// copyHost puts the host and the key of the authority into the home of the benchmark. The host gets no labels, because a rule
// may ask a person about them.
func (b *hostBench) copyHost(name string) (err error) {
	home, err := localapi.FindHome()
	if err != nil {
		return err
	}
	if b.host, err = (&source.Registry{Dir: string(home)}).Find(name); err != nil {
		return err
	}
	if !b.host.Prepared() {
		return bailey.Denied.Errorf("bailey source prepare "+name, "the host %s is not prepared", name)
	}
	b.host.Labels = nil
	if err := (&source.Registry{Dir: b.dir}).Put(b.host); err != nil {
		return err
	}
	if b.key, err = sshca.LoadKey(filepath.Join(string(home), "ssh_ca")); err != nil {
		return err
	}
	return sshca.SaveKey(filepath.Join(b.dir, "ssh_ca"), b.key)
}

// writeLogin writes a key and a certificate for ssh.
func (b *hostBench) writeLogin(ctx context.Context) error {
	authority, err := sshca.New(sshca.Config{Signer: b.key, Now: time.Now})
	if err != nil {
		return err
	}
	files, err := sshca.NewCredentials(
		sshca.CredentialsConfig{Issuer: authority, Now: time.Now, Dir: filepath.Join(b.dir, "login")},
	)
	if err != nil {
		return err
	}
	c, err := files.Get(ctx, sshca.Target{Principal: sshca.ReadOnly, Name: "host",
		Identity: sshca.Identity{User: "bench", VM: "host", Sandbox: "source"}, ShellOptions: b.shellOptions()})
	if err != nil {
		return err
	}
	if b.host.SSHConfig != "" {
		b.ssh = []string{"-F", b.host.SSHConfig}
	}
	b.ssh = append(
		b.ssh,
		"-l",
		source.Account,
		"-i",
		c.KeyFile,
		"-o",
		"CertificateFile="+c.CertificateFile,
		"-o",
		"IdentitiesOnly=yes",
		"-o",
		"IdentityAgent=none",
		"-o",
		"BatchMode=yes",
	)
	return nil
}

// shellOptions let the shell run on a kernel without Landlock if the person accepted that.
func (b *hostBench) shellOptions() []string {
	if b.host.WithoutLandlock && b.host.LandlockABI == 0 {
		return []string{"--without-landlock"}
	}
	return nil
}

// callGate makes a call through the gate.
func (b *hostBench) callGate(ctx context.Context) error {
	return b.gateway.Gate.Do(
		ctx,
		bailey.Call{Capability: "source.run", Input: map[string]any{"host": b.host.Name, "command": hostLine},
			Door: "bench", Dir: b.dir, Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: "s-bench"}},
	).Err
}

// newAccess returns the login of the gateway, with a new authority.
func (b *hostBench) newAccess(pool *remote.Pool) (*source.Access, error) {
	authority, err := server.OpenHostAuthority(localapi.Home(b.dir), nil)
	if err != nil {
		return nil, err
	}
	return authority.OpenAccess(pool)
}

// callAnew runs the line on a new connection, with a new certificate.
func (b *hostBench) callAnew(ctx context.Context) error {
	pool := &remote.Pool{Now: time.Now}
	defer pool.Close()
	runner := &source.Runner{Registry: &source.Registry{Dir: b.dir},
		Access: func() (*source.Access, error) { return b.newAccess(pool) }}
	run, err := runner.Plan(ctx, bailey.Job{Args: []string{"run", b.host.Name, hostLine}})
	if err != nil {
		return err
	}
	defer run.Close()
	exit, err := run.Start(ctx, bailey.Lent{}, bailey.Streams{})
	if err == nil && exit.Code != 0 {
		err = bailey.ToolFailed.Errorf("bailey source doctor "+b.host.Name, "%q ended with %d", hostLine, exit.Code)
	}
	return err
}

func (b *hostBench) runSSH(ctx context.Context, options ...string) error {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, "ssh", slices.Concat(b.ssh, options, []string{b.host.Name, hostLine})...)
	cmd.Stderr = &log
	if err := cmd.Run(); err != nil {
		return bailey.Unavailable.Wrap(
			err,
			"ssh with a certificate fails: "+strings.TrimSpace(log.String()),
			"bailey source doctor "+b.host.Name,
		)
	}
	return nil
}

func (b *hostBench) controlPath() string { return filepath.Join(b.dir, "master") }

// endMaster ends the kept connection of ssh.
func (b *hostBench) endMaster() {
	args := slices.Concat(b.ssh, []string{"-o", "ControlPath=" + b.controlPath(), "-O", "exit", b.host.Name})
	if err := exec.Command("ssh", args...).Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bailey-bench: the kept connection of ssh ends by itself after a minute")
	}
}

// syncTwice writes as much as the two entries of a receipt.
func (b *hostBench) syncTwice() error {
	line := make([]byte, 1024)
	rand.Read(line) // never fails (crypto/rand)
	return errors.Join(b.disk.Append(line), b.disk.Append(line))
}
