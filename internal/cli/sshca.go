package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/sshca"
)

// sshCAVerb is the group of commands for the key that signs SSH certificates.
func (a *App) sshCAVerb() *cobra.Command {
	var path string
	cmd := GroupVerb("ssh-ca", "Manage the key that signs SSH certificates",
		`Manage the key of the SSH certificate authority. Bailey signs a certificate with it for each login to a source
host or a sandbox. The certificate is valid for 30 minutes, and the host stores only the public key.

The private key is the file ssh_ca in $BAILEY_HOME, with mode 0600 or 0400; a key that other users can access is refused.
To replace the key, run rotate begin, give each host the keys that export prints, run rotate switch, and 60 minutes later
rotate end.`,
		a.sshCAInitVerb(&path), a.sshCAShowVerb(&path), a.sshCARotateVerb(&path), a.sshCAExportVerb(&path))
	cmd.PersistentFlags().StringVar(&path, "key", "", "`file` of the private key, instead of ssh_ca in $BAILEY_HOME")
	return cmd
}

// openKeyStore returns the store of a key file; "" is the file in the home.
func openKeyStore(path string) (*sshca.KeyStore, error) {
	if path == "" {
		home, err := localapi.FindHome()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(string(home), "ssh_ca")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot find the current directory", "")
	}
	return sshca.NewStore(sshca.StoreConfig{Path: path, Now: time.Now})
}

// An sshCAStatus is the state of the authority in JSON.
type sshCAStatus struct {
	State   sshca.RotationState `json:"state"`
	Signing sshCAKey            `json:"signing"`
	Other   *sshCAKey           `json:"other,omitempty"` // the next key in state staged, the old key in state retiring
	Until   *time.Time          `json:"until,omitempty"` // in state retiring: when rotate end is possible
}

// An sshCAKey is a public key of the authority.
type sshCAKey struct {
	Fingerprint string `json:"fingerprint"`
	PublicKey   string `json:"public_key"`
}

func newSSHCAStatus(s sshca.Status) sshCAStatus {
	out := sshCAStatus{State: s.State, Signing: sshCAKey{s.Signing.Fingerprint, s.Signing.Line}}
	if s.Other.Line != "" {
		out.Other = &sshCAKey{s.Other.Fingerprint, s.Other.Line}
	}
	if !s.Until.IsZero() {
		out.Until = &s.Until
	}
	return out
}

// printSSHCA prints the state and the next step.
func (a *App) printSSHCA(status sshca.Status) error {
	return PrintAnswer(a, newSSHCAStatus(status), func(w io.Writer, s sshCAStatus) {
		fmt.Fprintf(w, "signs    %s\n", s.Signing.Fingerprint)
		switch s.State {
		case sshca.Staged:
			fmt.Fprintf(w, "next     %s\n", s.Other.Fingerprint)
			fmt.Fprintln(
				w,
				"give each host the keys that bailey ssh-ca export prints, then run: bailey ssh-ca rotate switch",
			)
		case sshca.Retiring:
			fmt.Fprintf(w, "old      %s\n", s.Other.Fingerprint)
			fmt.Fprintf(
				w,
				"after %s, run: bailey ssh-ca rotate end\n",
				s.Until.Local().Format("15:04:05 on 2006-01-02"),
			)
		}
	})
}

// storeVerb returns a command that calls do with the store and prints the state that do returns.
func (a *App) storeVerb(
	path *string,
	cmd *cobra.Command,
	do func(*cobra.Command, *sshca.KeyStore) (sshca.Status, error),
) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openKeyStore(*path)
		if err != nil {
			return err
		}
		status, err := do(cmd, store)
		if err != nil {
			return err
		}
		return a.printSSHCA(status)
	}
	return cmd
}

func (a *App) sshCAInitVerb(path *string) *cobra.Command {
	return a.storeVerb(path, &cobra.Command{Use: "init", Short: "Create the key",
		Long: "Create the key of the authority. An existing key is never replaced; to do that, see bailey ssh-ca rotate."},
		func(_ *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) { return s.Create() })
}

func (a *App) sshCAShowVerb(path *string) *cobra.Command {
	return a.storeVerb(path, &cobra.Command{Use: "show", Short: "Show the keys and the state of a rotation"},
		func(_ *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) { return s.Show() })
}

func (a *App) sshCAExportVerb(path *string) *cobra.Command {
	return &cobra.Command{Use: "export", Short: "Print the public keys that hosts must trust",
		Long: `Print the public keys that hosts must trust, one line each, as in the file that TrustedUserCAKeys of
sshd_config(5) names. During a rotation there are two.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := openKeyStore(*path)
			if err != nil {
				return err
			}
			keys, err := store.Export()
			if err != nil {
				return err
			}
			return a.PrintLine(map[string]string{"trusted": string(keys)}, "%s", keys)
		}}
}

func (a *App) sshCARotateVerb(path *string) *cobra.Command {
	var force bool
	end := a.storeVerb(path, &cobra.Command{Use: "end", Short: "Remove the old key from the trusted keys",
		Long: `Remove the old key from the trusted keys. This is refused while certificates of the old key can be valid; with
--force it is done at once, for example if an attacker may have the old key. Then give each host the keys of export.`},
		func(cmd *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) {
			if force {
				if err := a.confirmRotation(cmd, "End certificates of the old key before they expire?"); err != nil {
					return sshca.Status{}, err
				}
			}
			return s.EndRotation(force)
		})
	end.Flags().BoolVar(&force, "force", false, "also while certificates of the old key are valid")
	a.OperatorVerb(end)
	return GroupVerb(
		"rotate",
		"Replace the key in three steps: begin, switch, end",
		"",
		a.storeVerb(
			path,
			&cobra.Command{Use: "begin", Short: "Create the next key, which is trusted but does not sign yet"},
			func(_ *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) { return s.BeginRotation() },
		),
		a.OperatorVerb(
			a.storeVerb(
				path,
				&cobra.Command{Use: "switch", Short: "Sign with the next key, and delete the old private key",
					Long: `Sign with the next key, and delete the private half of the old key. A host that does not have the keys of
export yet refuses every new certificate.`},
				func(cmd *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) {
					if err := a.confirmRotation(cmd, "Does each host trust the next key, and shall the old private key be deleted?"); err != nil {
						return sshca.Status{}, err
					}
					return s.SwitchKeys()
				},
			),
		),
		end,
		a.storeVerb(path, &cobra.Command{Use: "cancel", Short: "Delete the next key before it signs"},
			func(_ *cobra.Command, s *sshca.KeyStore) (sshca.Status, error) { return s.CancelRotation() }),
	)
}

// confirmRotation asks an operator before a step that ends the use of a key.
func (a *App) confirmRotation(cmd *cobra.Command, question string) error {
	if _, err := a.Operator("ssh-ca rotate " + cmd.Name()); err != nil {
		return err
	}
	return a.Confirm(cmd.Context(), question)
}
