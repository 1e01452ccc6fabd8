package gitsign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"bailey/internal/sshsig"
	"bailey/pack"
)

// gitNamespace is the namespace of git's signatures with ssh keys.
const gitNamespace = "git"

// maxKeyFile limits a file with a key, in bytes.
const maxKeyFile = 64 << 10

// findSSHKey finds the key that user.signingKey names, and what can sign with it: the ssh agent, or else a private key
// in a file without a passphrase.
func findSSHKey(ctx context.Context, g pack.GitSigning) (pack.GitKey, holder, error) {
	none := pack.GitKey{}
	if err := checkProgram(g.Program, "ssh-keygen", "gpg.ssh.program"); err != nil {
		return none, nil, err
	}
	switch {
	case g.Key == "" && g.KeyCommand:
		return none, nil, unableError("gpg.ssh.defaultKeyCommand is set, and the gateway runs no command to find a key",
			"name the key: git config --global user.signingKey ~/.ssh/id_ed25519.pub")
	case g.Key == "":
		return none, nil, unableError("user.signingKey is not set",
			"name the key: git config --global user.signingKey ~/.ssh/id_ed25519.pub")
	}
	public, private, err := readSSHKey(g.Key)
	if err != nil {
		return none, nil, err
	}
	key := pack.GitKey{Format: "ssh", Public: "key::" + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))),
		Fingerprint: ssh.FingerprintSHA256(public)}
	agentErr := agentHas(ctx, public)
	switch {
	case agentErr == nil:
		key.Holder = "ssh agent"
		return key, agentHolder{public}, nil
	case private != nil:
		key.Holder = "key file"
		return key, fileHolder{private}, nil
	}
	return none, nil, unableError(fmt.Sprintf("the ssh agent does not have the key %s: %v", key.Fingerprint, agentErr),
		"run ssh-add in the shell in which you start the gateway, then bailey gateway stop")
}

// readSSHKey returns the public key that user.signingKey names, literally or by a file, and the private key if a file
// has it without a passphrase.
func readSSHKey(setting string) (public ssh.PublicKey, private ssh.Signer, err error) {
	literal, isLiteral := strings.CutPrefix(setting, "key::")
	if isLiteral || strings.HasPrefix(setting, "ssh-") {
		if public, _, _, _, err = ssh.ParseAuthorizedKey([]byte(literal)); err != nil {
			return nil, nil, unableError("user.signingKey has no public key after key::",
				"write it as in the .pub file: key::ssh-ed25519 AAAA…")
		}
		return public, nil, nil
	}
	if !filepath.IsAbs(setting) {
		return nil, nil, unableError("user.signingKey is not an absolute path of a key",
			"git config --global user.signingKey ~/.ssh/id_ed25519.pub")
	}
	text, err := readKeyFile(setting)
	if err != nil {
		return nil, nil, unableError(fmt.Sprintf("user.signingKey names %s: %v", setting, err),
			"name the file of a key that you have")
	}
	if public, _, _, _, err = ssh.ParseAuthorizedKey(text); err == nil {
		return public, privateHalf(strings.TrimSuffix(setting, ".pub"), public), nil
	}
	private, err = ssh.ParsePrivateKey(text)
	if missing := new(ssh.PassphraseMissingError); errors.As(err, &missing) {
		if public = missing.PublicKey; public == nil {
			public = publicHalf(setting + ".pub")
		}
		if public != nil {
			return public, nil, nil
		}
	}
	if err != nil {
		return nil, nil, unableError(setting+" is no key of ssh that can be read", "name the .pub file of the key")
	}
	return private.PublicKey(), private, nil
}

func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	var perr *fs.PathError
	switch {
	case errors.As(err, &perr):
		return nil, perr.Err
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return nil, errors.New("it is no file of a key")
	}
	return os.ReadFile(path)
}

func publicHalf(path string) ssh.PublicKey {
	text, err := readKeyFile(path)
	if err != nil {
		return nil
	}
	public, _, _, _, _ := ssh.ParseAuthorizedKey(text)
	return public
}

// privateHalf returns the private key in a file if it has no passphrase and belongs to the public key, or nil.
func privateHalf(path string, public ssh.PublicKey) ssh.Signer {
	text, err := readKeyFile(path)
	if err != nil {
		return nil
	}
	private, err := ssh.ParsePrivateKey(text)
	if err != nil || !bytes.Equal(private.PublicKey().Marshal(), public.Marshal()) {
		return nil
	}
	return private
}

// openAgent connects to the person's ssh agent. The connection ends with ctx.
func openAgent(ctx context.Context) (agent.ExtendedAgent, func(), error) {
	path := os.Getenv("SSH_AUTH_SOCK")
	if path == "" {
		return nil, nil, errors.New("SSH_AUTH_SOCK is not set in the gateway")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("no agent answers at %s", path)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return agent.NewClient(conn), func() { stop(); conn.Close() }, nil
}

func agentHas(ctx context.Context, public ssh.PublicKey) error {
	a, closeAgent, err := openAgent(ctx)
	if err != nil {
		return err
	}
	defer closeAgent()
	keys, err := a.List()
	if err != nil {
		return errors.New("the agent does not list its keys; it may be locked")
	}
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), public.Marshal()) {
			return nil
		}
	}
	return fmt.Errorf("it has %d other keys", len(keys))
}

// agentHolder signs with a key of the ssh agent.
type agentHolder struct{ public ssh.PublicKey }

func (h agentHolder) signText(ctx context.Context, text []byte) ([]byte, error) {
	a, closeAgent, err := openAgent(ctx)
	if err != nil {
		return nil, fmt.Errorf("the ssh agent is gone: %w", err)
	}
	defer closeAgent()
	return sshsig.Sign(text, gitNamespace, h.public, func(data []byte) (*ssh.Signature, error) {
		var flags agent.SignatureFlags
		if h.public.Type() == ssh.KeyAlgoRSA {
			flags = agent.SignatureFlagRsaSha512
		}
		signature, err := a.SignWithFlags(h.public, data, flags)
		if err != nil {
			return nil, fmt.Errorf("the ssh agent did not sign: %w", err)
		}
		return signature, nil
	})
}

// fileHolder signs with a private key that was read from its file.
type fileHolder struct{ key ssh.Signer }

func (h fileHolder) signText(_ context.Context, text []byte) ([]byte, error) {
	return sshsig.Sign(text, gitNamespace, h.key.PublicKey(), func(data []byte) (*ssh.Signature, error) {
		if a, ok := h.key.(ssh.AlgorithmSigner); ok && h.key.PublicKey().Type() == ssh.KeyAlgoRSA {
			return a.SignWithAlgorithm(nil, data, ssh.KeyAlgoRSASHA512)
		}
		return h.key.Sign(nil, data)
	})
}
