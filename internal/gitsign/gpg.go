package gitsign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"bailey/pack"
)

// checkProgram refuses a program of the person other than the system's own: the gateway runs no other for a call.
func checkProgram(setting, own, name string) error {
	base := filepath.Base(setting)
	if setting == "" || setting == own || setting == own+"2" ||
		(base == own || base == own+"2") && isSystemProgram(setting) {
		return nil
	}
	return unableError(fmt.Sprintf("%s is %.200q, and only the system's own %s signs for a call", name, setting, own),
		"take it out: git config --global --unset "+name)
}

func isSystemProgram(path string) bool {
	for _, dir := range systemDirs() {
		if filepath.Dir(path) == dir {
			return true
		}
	}
	return false
}

// findProgram returns the path of a program in the system's directories. Neither PATH nor a setting leads elsewhere.
func findProgram(name string, dirs []string) (string, error) {
	var errs []error
	for _, dir := range dirs {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = onlyRootWrites(path)
		}
		if err == nil {
			return path, nil
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return "", unableError(errors.Join(errs...).Error(), "install "+name+" as root")
	}
	return "", unableError(fmt.Sprintf("%s is in none of %s", name, strings.Join(dirs, ", ")), "install GnuPG")
}

// findGPGKey finds the secret key of the person in gpg, which runs outside of the cage with the person's own directory.
func findGPGKey(ctx context.Context, g pack.GitSigning) (pack.GitKey, holder, error) {
	none := pack.GitKey{}
	if err := checkProgram(g.Program, "gpg", "gpg.program"); err != nil {
		return none, nil, err
	}
	program, err := findProgram("gpg", systemDirs())
	if err != nil {
		return none, nil, err
	}
	wanted := g.Key
	if wanted == "" { // as git does
		wanted = fmt.Sprintf("%s <%s>", withoutCrud(g.Name), withoutCrud(g.Email))
	}
	list, _, err := runGPG(ctx, program, nil, "--with-colons", "--list-secret-keys", "--", wanted)
	fingerprint := ""
	if err == nil {
		fingerprint = signingFingerprint(string(list), strings.HasSuffix(wanted, "!"), wanted)
	}
	if fingerprint == "" {
		return none, nil, unableError(fmt.Sprintf("gpg has no secret key %.200q that can sign now", wanted),
			"gpg --list-secret-keys shows yours; git config --global user.signingKey ID")
	}
	key := pack.GitKey{Format: "openpgp", Public: fingerprint, Holder: "gpg",
		Fingerprint: strings.TrimSuffix(fingerprint, "!")}
	return key, gpgHolder{program, fingerprint}, nil
}

// signingFingerprint returns the fingerprint of the first key in a list of gpg that can sign now (doc/DETAILS of
// GnuPG). If exact, it is the subkey that wanted names, with the mark by which gpg uses that one alone.
func signingFingerprint(list string, exact bool, wanted string) string {
	id := strings.ToUpper(strings.TrimPrefix(strings.TrimSuffix(wanted, "!"), "0x"))
	primary, usable := "", false
	able := false // the key of the last sec or ssb line
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 15 && f[0] != "fpr" || len(f) < 10 {
			continue
		}
		switch f[0] {
		case "sec", "ssb":
			if f[0] == "sec" {
				if primary != "" && usable && !exact {
					return primary
				}
				primary, usable = "", false
			}
			able = strings.Contains(f[11], "s") && f[14] != "#" && !strings.ContainsAny(f[1], "erdin")
			usable = usable || able
		case "fpr":
			if primary == "" {
				primary = f[9]
			}
			if exact && able && id != "" && strings.HasSuffix(f[9], id) {
				return f[9] + "!"
			}
		}
	}
	if usable && !exact {
		return primary
	}
	return ""
}

// gpgHolder signs with a key of gpg.
type gpgHolder struct{ program, fingerprint string }

func (h gpgHolder) signText(ctx context.Context, text []byte) ([]byte, error) {
	signature, said, err := runGPG(ctx, h.program, text, "--status-fd=2", "--armor", "--detach-sign", "--local-user",
		h.fingerprint)
	if err == nil && (!bytes.Contains(said, []byte("[GNUPG:] SIG_CREATED ")) ||
		!bytes.HasPrefix(signature, []byte("-----BEGIN PGP SIGNATURE-----\n"))) {
		err = errors.New("it made no signature")
	}
	if err != nil {
		return nil, fmt.Errorf("gpg did not sign: %w: %s", err, lastWords(said))
	}
	return signature, nil
}

// lastWords returns the last line that gpg wrote for a person.
func lastWords(said []byte) (last string) {
	for line := range strings.Lines(string(said)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "[GNUPG:]") {
			last = line
		}
	}
	return strings.ToValidUTF8(last[:min(len(last), 300)], "?")
}

// runGPG runs gpg as the person, with the variables that it and its pinentry need and no others.
func runGPG(ctx context.Context, program string, stdin []byte, args ...string) (out, said []byte, err error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"--batch", "--no-tty"}, args...)...)
	cmd.Env = []string{"PATH=" + strings.Join(systemDirs(), string(os.PathListSeparator)), "LC_ALL=C.UTF-8"}
	for _, name := range []string{"HOME", "GNUPGHOME", "GPG_TTY", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
		"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if v, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err = cmd.Run()
	return stdout.Bytes(), stderr.Bytes(), err
}
