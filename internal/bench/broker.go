package bench

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/broker"
)

// benchSecret is the variable that the broker of the benchmark lends.
const benchSecret = "BAILEY_BENCH_SECRET"

func (a *commands) benchBrokerVerb() *cobra.Command {
	var n int
	var serve string
	cmd := &cobra.Command{
		Use: "broker", Short: "Compare a loan of a credential with the start of a program", Args: cobra.NoArgs,
		Long: `Time a loan of a variable from a broker in a separate process, including the fsync of its journal
(row env); a loan for an answer with one ed25519 signature (signed); the end of a loan (return); and /bin/true
alone (bare). A row with the name of an adapter is a new credential of an issuer on this machine: the broker's own share
of the loan, without the time in which it talks to the issuer (fact with_issuer_us: with that time), compared with the limit
of 1 ms. In a row "kept", the connection is that of the loan before. github and gcloud sign an assertion with RSA, which
serves the loans of five minutes; a row "first" also reads a new key and signs, of which row raw-sign is the signature
alone. A credential is never kept for a second loan; a value that the broker has already is row env. The rows alternate
in one run, on the disk of TMPDIR.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if serve != "" {
				return serveBench(cmd.Context(), serve)
			}
			rows, err := benchBroker(cmd.Context(), n)
			if err != nil {
				return err
			}
			return a.printRows(rows)
		},
	}
	cmd.Flags().IntVarP(&n, "n", "n", 300, "number of loans of each kind")
	cmd.Flags().StringVar(&serve, "serve", "", "run the broker of this directory")
	if err := cmd.Flags().MarkHidden("serve"); err != nil {
		panic(err) // cannot fail: the flag is defined one line above
	}
	return cmd
}

// serveBench runs a broker. It applies the lease table without review, because the benchmark wrote it.
func serveBench(ctx context.Context, dir string) error {
	s, err := broker.New(broker.Config{Dir: dir, Ready: func(string) { fmt.Println("ready") }})
	if err != nil {
		return err
	}
	defer s.Close()
	t, err := s.ReadTable()
	if err != nil {
		return err
	}
	if err := s.Apply(t.Digest); err != nil {
		return err
	}
	return s.Run(ctx)
}

func benchBroker(ctx context.Context, n int) ([]Row, error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	key, err := newBenchKey()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("admitted: [%d]\napprovers:\n  - {name: bench, key: ssh-ed25519 %s}\nleases:\n  env: {env: %s, approval: none}\n  signed: {env: %s, approval: {level: signed-software}}\n",
		os.Geteuid(), base64.StdEncoding.EncodeToString(key.publicKeyBlob()), benchSecret, benchSecret)
	issuer, err := startIssuer(dir)
	if err != nil {
		return nil, err
	}
	defer issuer.Close()
	if err := os.WriteFile(filepath.Join(dir, broker.TableName), []byte(text+issuer.leaseTable()), 0o600); err != nil {
		return nil, err
	}
	stop, err := startBench(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	c := broker.Client{Socket: filepath.Join(dir, broker.SocketName), UID: os.Geteuid()}
	times, own, whole := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	const warm = 5
	for i := range n + warm {
		if i == warm {
			clear(times)
			clear(own)
			clear(whole)
		}
		if err := timeBrokerCalls(ctx, c, key, times); err != nil {
			return nil, err
		}
		if err := issuer.timeSignature(times); err != nil {
			return nil, err
		}
		if err := issuer.timeIssuers(ctx, c, i, own, whole); err != nil {
			return nil, err
		}
	}
	rows, _ := timeRows(times, "bare", "bare", "env", "signed", "return", "raw-sign")
	return append(rows, issuerRows(own, whole)...), nil
}

// startBench starts this program as the broker, and waits until it is ready.
func startBench(ctx context.Context, dir string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "broker", "--serve", dir)
	cmd.Env = append(os.Environ(), benchSecret+"=the value of the benchmark")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill() // it may have exited already
		_ = cmd.Wait()
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		stop()
		return nil, bailey.Unavailable.Wrap(err, "the broker of the benchmark did not start",
			"see its output above")
	}
	return stop, nil
}

// timeBrokerCalls times one operation of each kind.
func timeBrokerCalls(ctx context.Context, c broker.Client, key benchKey, times map[string][]time.Duration) error {
	if err := recordTime(times, "bare",
		func() error { return exec.CommandContext(ctx, "/bin/true").Run() }); err != nil {
		return err
	}
	var lease bailey.Lease
	want := func(name string) []bailey.Want { return []bailey.Want{{Name: name, Env: "TOKEN"}} }
	lend := func(l bailey.Loan) func() error {
		return func() (err error) { lease, err = c.Lend(ctx, l); return err }
	}
	err := recordTime(times, "env", lend(bailey.Loan{Receipt: "r-bench", Capability: "bench.lend", Wants: want("env")}))
	if err != nil {
		return err
	}
	if err := recordTime(times, "return", func() error { lease.Return(); return nil }); err != nil {
		return err
	}
	scopes, err := c.Scope(ctx, want("signed"))
	if err != nil {
		return err
	}
	nonce := make([]byte, 16)
	rand.Read(nonce) // never fails (crypto/rand)
	text := approvaltext.Text(bailey.Question{ID: bailey.NewApprovalID(), Call: "bench.lend", Leases: scopes,
		Nonce:    hex.EncodeToString(nonce),
		Contents: bailey.NoContents, AskedAt: time.Now(), Expires: time.Now().Add(time.Minute), Until: time.Now().Add(time.Minute)}, nonce)
	if err := recordTime(times, "signed",
		lend(bailey.Loan{Receipt: "r-bench", Capability: "bench.lend", Wants: want("signed"), Text: text,
			Signatures: []string{key.signText(text)}})); err != nil {
		return err
	}
	lease.Return()
	return nil
}

func recordTime(times map[string][]time.Duration, name string, do func() error) error {
	start := time.Now()
	err := do()
	times[name] = append(times[name], time.Since(start))
	return err
}

// benchKey signs like ssh-keygen -Y sign (PROTOCOL.sshsig). It must be used in benchmarks only.
type benchKey struct{ private ed25519.PrivateKey }

func newBenchKey() (benchKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return benchKey{private}, err
}

func (k benchKey) publicKeyBlob() []byte {
	return encodeStrings("ssh-ed25519", string(k.private.Public().(ed25519.PublicKey)))
}

func (k benchKey) signText(text string) string {
	sum := sha512.Sum512([]byte(text))
	signed := append([]byte("SSHSIG"), encodeStrings(approvaltext.Namespace, "", "sha512", string(sum[:]))...)
	sig := encodeStrings("ssh-ed25519", string(ed25519.Sign(k.private, signed)))
	raw := slices.Concat([]byte("SSHSIG\x00\x00\x00\x01"),
		encodeStrings(string(k.publicKeyBlob()), approvaltext.Namespace, "", "sha512", string(sig)))
	var b strings.Builder
	b.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 70) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String() + "-----END SSH SIGNATURE-----\n"
}

// encodeStrings encodes strings, each with its length in front (RFC 4251, section 5).
func encodeStrings(list ...string) (out []byte) {
	for _, s := range list {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	return out
}
