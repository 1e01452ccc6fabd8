package direct

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/hostapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/sshca"
)

// Files of the SSH server in a sandbox. The directory of the last three belongs to Bailey.
const (
	guestHostKey = "/etc/ssh/ssh_host_ed25519_key"
	guestSSHDir  = "/run/bailey/ssh"
)

// guestServer is the configuration of the server, sshd_config(5): it serves one connection, with certificates only. The
// modes of the directories above its files are those of the image, which the check of sshd may not like.
const guestServer = "HostKey " + guestHostKey + "\n" +
	"HostCertificate " + guestSSHDir + "/host-cert.pub\n" +
	"TrustedUserCAKeys " + guestSSHDir + "/authorities.pub\n" +
	"AuthorizedPrincipalsFile " + guestSSHDir + "/principals\n" +
	`AuthenticationMethods publickey
AuthorizedKeysFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PidFile none
LogLevel ERROR
StrictModes no
Subsystem sftp internal-sftp
`

func (a *commands) sandboxSSHVerb() *cobra.Command {
	var channel bool
	cmd := a.OperatorVerb(&cobra.Command{
		Use: "ssh SANDBOX [COMMAND...]", Short: "Log in to a sandbox with SSH",
		Long: `Log in to a sandbox with the program ssh, as root, with a certificate for half an hour that the key of
bailey ssh-ca signs. The sandbox needs the program sshd, but neither a network nor a port: the connection passes through
the channel of its agent, over which the host key is read, too. The sandbox may belong to any of your agents. The ledger
has the event sandbox.enter for the login and for the connection; what you type is not recorded.

Programs that use ssh can use this command instead, for example rsync -e "bailey sandbox ssh".`,
		Example: "  bailey sandbox ssh web\n  bailey sandbox ssh web uptime", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.openSandbox(cmd.Context(), "sandbox ssh", args[0])
			if err != nil {
				return err
			}
			if err := b.recordEntry(cmd.Context(), apitype.SandboxEntering{Action: "ssh", Argv: args[1:]}); err != nil {
				return err
			}
			var exit hostapi.Exit
			if channel {
				exit, err = b.serveConnection(cmd.Context(), a.App)
			} else {
				exit, err = a.loginWithSSH(cmd.Context(), b, args[1:])
			}
			if err != nil {
				return err
			}
			if a.JSON {
				return errors.Join(a.Print(exit), exitOf(exit))
			}
			return exitOf(exit)
		},
	})
	cmd.Flags().
		BoolVar(&channel, "channel", false, "only connect standard input and output, for ProxyCommand of ssh_config(5)")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// serveConnection runs the SSH server of a sandbox for one connection, which is standard input and output.
func (b personBox) serveConnection(ctx context.Context, a *cli.App) (hostapi.Exit, error) {
	signal.Ignore(syscall.SIGHUP) // ssh(1) sends it when the connection has ended
	command := hostapi.Command{Sandbox: b.ID, Dir: "/", Env: shellEnv(),
		Argv: []string{"/usr/sbin/sshd", "-i", "-e", "-f", guestSSHDir + "/sshd_config"}}
	return b.host.Exec(ctx, b.owner, command, hostapi.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr})
}

// loginWithSSH prepares the server and the client, and runs ssh(1).
func (a *commands) loginWithSSH(ctx context.Context, b personBox, argv []string) (exit hostapi.Exit, err error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return exit, bailey.Unavailable.Wrap(
			err,
			"the program ssh is missing",
			"install it, on Debian the package openssh-client",
		)
	}
	dir, err := os.MkdirTemp("", "bailey-ssh-")
	if err != nil {
		return exit, err
	}
	defer os.RemoveAll(dir)
	trusted, err := a.prepareServer(ctx, b)
	if err != nil {
		return exit, err
	}
	if err := a.writeLogin(ctx, b, dir, trusted); err != nil {
		return exit, err
	}
	self, err := os.Executable()
	if err != nil {
		return exit, err
	}
	options := []string{"-F", "none", "-i", filepath.Join(dir, "key"), "-l", "root"}
	for _, o := range []string{
		"IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=yes", "UpdateHostKeys=no",
		"UserKnownHostsFile=" + filepath.Join(dir, "known_hosts"), "GlobalKnownHostsFile=none", "HostKeyAlias=" + b.ID,
		"HostKeyAlgorithms=" + ssh.CertAlgoED25519v01, "PreferredAuthentications=publickey", "LogLevel=ERROR", "ProxyCommand=" + proxyCommand(self, b.ID)} {
		options = append(options, "-o", o)
	}
	if a.JSON { // standard output is for the answer
		options = append(options, "-T")
	}
	cmd := exec.CommandContext(ctx, program, append(append(options, "--", b.ID), argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.Stdin, a.Stdout, a.Stderr
	if a.JSON {
		cmd.Stdout = a.Stderr
	}
	cmd.Env = append(os.Environ(), "BAILEY_OPERATOR=1") // the person has this right here already
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() >= 0 {
		return hostapi.Exit{Code: ended.ExitCode()}, nil
	}
	return exit, err
}

// proxyCommand returns the command that connects, as ssh_config(5) has it: a line of a shell with "%" doubled.
func proxyCommand(self, box string) string {
	quoted := "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
	return strings.ReplaceAll(quoted, "%", "%%") + " sandbox ssh --channel --yes " + box
}

// prepareServer writes the files of the SSH server, with a certificate for the host key that the guest made for itself. It
// returns the public keys of the authority.
func (a *commands) prepareServer(ctx context.Context, b personBox) ([]byte, error) {
	hostKey, err := b.readHostKey(ctx)
	if err != nil {
		return nil, err
	}
	authority, err := a.openAuthority(ctx, b.gate.Home)
	if err != nil {
		return nil, err
	}
	trusted, err := authority.Trusted(ctx)
	if err != nil {
		return nil, err
	}
	identity, err := b.loginIdentity()
	if err != nil {
		return nil, err
	}
	certificate, err := authority.Issue(ctx, sshca.Request{Key: hostKey, Principal: sshca.SandboxHost, Host: b.ID,
		Identity: identity})
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"authorities.pub": string(trusted), "principals": string(sshca.Sandbox) + "\n",
		"host-cert.pub": string(certificate.AuthorizedKey()), "sshd_config": guestServer} {
		q := hostapi.WriteRequest{Sandbox: b.ID, Path: path.Join(guestSSHDir, name), Data: []byte(text), Mode: 0o644,
			Parents: true}
		if _, err := hostapi.WriteFile.Ask(ctx, b.host, b.owner, q); err != nil {
			return nil, err
		}
	}
	return trusted, nil
}

// readHostKey returns the host key that the guest made for itself. It is read through the channel of the guest's agent, so
// no other machine can answer.
func (b personBox) readHostKey(ctx context.Context) (ssh.PublicKey, error) {
	content, err := hostapi.ReadFile.Ask(ctx, b.host, b.owner,
		hostapi.FileRequest{Sandbox: b.ID, Path: guestHostKey + ".pub", Limit: 4 << 10})
	if errors.Is(err, bailey.NotFound) {
		return nil, bailey.NotFound.Wrapf(err, "install openssh-server in the sandbox, or use bailey sandbox shell "+b.Name,
			"the sandbox %s has no SSH server", b.Name)
	}
	if err != nil {
		return nil, err
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey(content.Data)
	if err == nil && (len(rest) > 0 || key.Type() != ssh.KeyAlgoED25519) {
		err = errors.New("it is not one Ed25519 key")
	}
	if err != nil {
		return nil, bailey.ToolFailed.Wrapf(err, "restore the sandbox, or destroy it",
			"the host key of the sandbox %s is damaged", b.Name)
	}
	return key, nil
}

// loginIdentity names this person and the sandbox in certificates.
func (b personBox) loginIdentity() (sshca.Identity, error) {
	person, err := user.Current()
	if err != nil {
		return sshca.Identity{}, bailey.Unavailable.Wrap(err, "the name of this user is not known", "give this user an account")
	}
	return sshca.Identity{User: sshca.IDFor(person.Username), VM: b.ID, Sandbox: sshca.IDFor(b.Name)}, nil
}

// writeLogin writes a key with its certificate, and the authority whose certificate the server must show.
func (a *commands) writeLogin(ctx context.Context, b personBox, dir string, trusted []byte) error {
	identity, err := b.loginIdentity()
	if err != nil {
		return err
	}
	private, err := sshca.GenerateKey(nil)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return err
	}
	authority, err := a.openAuthority(ctx, b.gate.Home)
	if err != nil {
		return err
	}
	certificate, err := authority.Issue(ctx, sshca.Request{Key: signer.PublicKey(), Principal: sshca.Sandbox, Identity: identity})
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"key": pem.EncodeToMemory(block), "key-cert.pub": certificate.AuthorizedKey(),
		"known_hosts": knownAuthorities(b.ID, trusted)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// knownAuthorities returns the lines of known_hosts, sshd(8), that accept for one name the certificates of the keys in
// lines, and nothing else.
func knownAuthorities(host string, lines []byte) (known []byte) {
	for line := range bytes.Lines(lines) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			known = fmt.Appendf(known, "@cert-authority %s %s\n", host, line)
		}
	}
	return known
}
