package sshca

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// StoreConfig is the input of NewStore.
type StoreConfig struct {
	// Path is the file of the private key, for example $BAILEY_HOME/ssh_ca. It must be absolute.
	Path string
	// Now is the clock. It must be set.
	Now func() time.Time
	// Random is the source of new keys. If it is nil, crypto/rand is used.
	Random io.Reader
}

// KeyStore keeps the key of an authority and replaces it in three steps, between which each target must get the new
// list of trusted keys:
//
//	                       signs    trusted      files beside PATH.pub and PATH.trusted
//	Create                 key 1    1            PATH
//	BeginRotation          key 1    1 and 2      PATH, PATH.next
//	  distribute Export
//	SwitchKeys             key 2    2 and 1      PATH, PATH.old.pub
//	  wait for the last certificate of key 1
//	EndRotation            key 2    2            PATH
//	  distribute Export
//
// SwitchKeys deletes the private half of the old key. PATH.trusted is the list of trusted keys, in the format of
// TrustedUserCAKeys. Each step is atomic: after a crash at any moment, the step has either happened or it can be
// repeated. Steps of several processes are serialized by a lock on the directory.
//
// An Authority that was made before SwitchKeys continues to sign with the old key. The process must make a new one.
type KeyStore struct {
	dir, name string
	now       func() time.Time
	random    io.Reader
	before    func(operation string) error // for tests, see secretDir
}

// RotationState is the step between two keys.
type RotationState string

const (
	SingleKey RotationState = "single"   // one key signs and is trusted
	Staged    RotationState = "staged"   // the next key is trusted and does not sign yet
	Retiring  RotationState = "retiring" // the old key is trusted and does not sign any more
)

// TrustedKey is a public key of the authority.
type TrustedKey struct {
	Fingerprint string // "SHA256:..."
	Line        string // as in a .pub file, without a newline
}

// Status describes the keys of a store.
type Status struct {
	State   RotationState
	Signing TrustedKey
	// Other is the next key in state Staged and the old key in state Retiring.
	Other TrustedKey
	// Until is the time in state Retiring at which the last certificate of the old key expires.
	Until time.Time
}

// Trusted returns the lines of the list of trusted keys.
func (s Status) Trusted() []byte {
	text := s.Signing.Line + "\n"
	if s.State != SingleKey {
		text += s.Other.Line + "\n"
	}
	return []byte(text)
}

// NewStore returns a store. It reads and writes nothing.
func NewStore(c StoreConfig) (*KeyStore, error) {
	if !filepath.IsAbs(c.Path) || filepath.Clean(c.Path) != c.Path || c.Now == nil {
		return nil, bailey.Invalid.New(fmt.Sprintf("the path %.200q of the key is not absolute, or the store has no clock",
			c.Path), "Set an absolute Path and Now in sshca.StoreConfig.")
	}
	dir, name := filepath.Dir(c.Path), filepath.Base(c.Path)
	return &KeyStore{dir: dir, name: name, now: c.Now, random: sharedReader(c.Random)}, nil
}

func (s *KeyStore) nextName() string    { return s.name + ".next" }
func (s *KeyStore) oldName() string     { return s.name + ".old.pub" }
func (s *KeyStore) trustedName() string { return s.name + ".trusted" }
func (s *KeyStore) publicName() string  { return s.name + ".pub" }

// Create generates the first key. The error is Conflict if the store has one.
func (s *KeyStore) Create() (Status, error) {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return Status{}, bailey.Unavailable.Wrap(err, "cannot create "+s.dir,
			"Create the directory with mode 0700.")
	}
	return s.changeKeys(func(d *secretDir) error {
		key, err := GenerateKey(s.random)
		if err != nil {
			return err
		}
		defer clear(key)
		return d.saveKey(s.name, key)
	})
}

// Load returns the key that signs. The errors are those of LoadKey.
func (s *KeyStore) Load() (ed25519.PrivateKey, error) { return LoadKey(filepath.Join(s.dir, s.name)) }

// Show returns the state of the store. It changes nothing.
func (s *KeyStore) Show() (Status, error) {
	d, err := openSecretDir(s.dir)
	if err != nil {
		return Status{}, err
	}
	defer d.close()
	unlock, err := d.lockDir()
	if err != nil {
		return Status{}, err
	}
	defer unlock()
	return s.readStatus(d)
}

// Export returns the list of trusted keys for the targets. It also writes PATH.pub and PATH.trusted if they are missing
// or out of date, for example after a crash.
func (s *KeyStore) Export() ([]byte, error) {
	status, err := s.changeKeys(func(*secretDir) error { return nil })
	if err != nil {
		return nil, err
	}
	return status.Trusted(), nil
}

// BeginRotation generates the next key. From now on both keys are trusted, and the current key signs. The error is
// Conflict if a rotation is in progress.
func (s *KeyStore) BeginRotation() (Status, error) {
	return s.changeKeys(func(d *secretDir) error {
		if err := s.requireState(d, SingleKey); err != nil {
			return err
		}
		key, err := GenerateKey(s.random)
		if err != nil {
			return err
		}
		defer clear(key)
		return d.createPrivate(s.nextName(), key)
	})
}

// CancelRotation deletes the next key. The error is Conflict if it signs already, or if there is no rotation.
func (s *KeyStore) CancelRotation() (Status, error) {
	return s.changeKeys(func(d *secretDir) error {
		if err := s.requireState(d, Staged); err != nil {
			return err
		}
		if err := d.removeFile(s.nextName()); err != nil {
			return cannotWrite(d.joinPath(s.nextName()), err)
		}
		return d.syncDir()
	})
}

// SwitchKeys makes the next key the one that signs and deletes the private half of the old key. Each target must have
// the list of Export first. The error is Conflict if no next key is staged.
func (s *KeyStore) SwitchKeys() (Status, error) {
	return s.changeKeys(func(d *secretDir) error {
		if err := s.requireState(d, Staged); err != nil {
			return err
		}
		key, err := d.loadKey(s.name)
		if err != nil {
			return err
		}
		defer clear(key)
		line, err := publicLine(key)
		if err != nil {
			return err
		}
		if err := d.replaceFile(s.oldName(), line, publicMode); err != nil {
			return err
		}
		// The modification time is that of the switch, by the clock of the store.
		now := s.now()
		if err := d.doStep("set time", func() error { return d.root.Chtimes(s.oldName(), now, now) }); err != nil {
			return cannotWrite(d.joinPath(s.oldName()), err)
		}
		if err := d.renamePath(s.nextName(), s.name); err != nil {
			return cannotWrite(d.joinPath(s.name), err)
		}
		return d.syncDir()
	})
}

// EndRotation removes the old key from the list of trusted keys. Before Status.Until the error is Conflict, because
// certificates of the old key can still be valid. With force it is removed at any time, for example if the old key may
// be known to an attacker; targets refuse its certificates as soon as they have the new list.
func (s *KeyStore) EndRotation(force bool) (Status, error) {
	return s.changeKeys(func(d *secretDir) error {
		if err := s.requireState(d, Retiring); err != nil {
			return err
		}
		status, err := s.readStatus(d)
		if err != nil {
			return err
		}
		if left := status.Until.Sub(s.now()); left > 0 && !force {
			return bailey.Conflict.New("certificates of the old key can be valid until "+status.Until.UTC().Format(time.RFC3339),
				fmt.Sprintf("Wait %v, or force the end.", left.Round(time.Second)))
		}
		if err := d.removeFile(s.oldName()); err != nil {
			return cannotWrite(d.joinPath(s.oldName()), err)
		}
		return d.syncDir()
	})
}

// changeKeys runs one step under the lock of the directory, then writes the public files.
func (s *KeyStore) changeKeys(step func(*secretDir) error) (Status, error) {
	d, err := openSecretDir(s.dir)
	if err != nil {
		return Status{}, err
	}
	defer d.close()
	d.before = s.before
	unlock, err := d.lockDir()
	if err != nil {
		return Status{}, err
	}
	defer unlock()
	if err := s.removeTemporary(d); err != nil {
		return Status{}, err
	}
	if err := step(d); err != nil {
		return Status{}, err
	}
	status, err := s.readStatus(d)
	if err != nil {
		return Status{}, err
	}
	return status, s.writePublicFiles(d, status)
}

// removeTemporary removes temporary files of a process that crashed. Such a file can hold a private key.
func (s *KeyStore) removeTemporary(d *secretDir) error {
	for _, name := range []string{s.name, s.publicName(), s.nextName(), s.oldName(), s.trustedName()} {
		if err := d.removeFile(tempName(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return cannotWrite(d.joinPath(tempName(name)), err)
		}
	}
	return nil
}

func (s *KeyStore) writePublicFiles(d *secretDir, status Status) error {
	files := []struct {
		name string
		text []byte
	}{{s.publicName(), []byte(status.Signing.Line + "\n")}, {s.trustedName(), status.Trusted()}}
	for _, f := range files {
		if old, err := d.readFile(f.name, checkPublic); err == nil && bytes.Equal(old, f.text) {
			continue
		}
		if err := d.replaceFile(f.name, f.text, publicMode); err != nil {
			return err
		}
	}
	return nil
}

func (s *KeyStore) requireState(d *secretDir, want RotationState) error {
	status, err := s.readStatus(d)
	if err != nil || status.State == want {
		return err
	}
	hint := map[RotationState]string{
		SingleKey: "Begin a rotation first.",
		Staged:    "Switch the keys, or cancel the rotation.",
		Retiring:  "End the rotation first.",
	}[status.State]
	return bailey.Conflict.New(fmt.Sprintf("the keys of %s are in state %q, not %q", d.joinPath(s.name), status.State, want),
		hint)
}

// readStatus derives the state from the private keys. PATH.pub and PATH.trusted are only copies.
func (s *KeyStore) readStatus(d *secretDir) (Status, error) {
	signing, err := s.trustedKey(d, s.name)
	if err != nil {
		return Status{}, err
	}
	status := Status{State: SingleKey, Signing: signing}
	next, err := s.trustedKey(d, s.nextName())
	if err == nil {
		status.State, status.Other = Staged, next
	} else if bailey.KindOf(err) != bailey.NotFound {
		return Status{}, err
	}
	old, at, err := s.oldKey(d)
	switch {
	case bailey.KindOf(err) == bailey.NotFound:
		return status, nil
	case err != nil:
		return Status{}, err
	case old == signing:
		return status, nil // a crash in SwitchKeys, before the switch
	case status.State == Staged:
		return Status{}, bailey.Conflict.New("three keys of the authority exist: "+d.joinPath(s.name)+", .next and .old.pub",
			"Move "+d.joinPath(s.nextName())+" or "+d.joinPath(s.oldName())+" to another directory.")
	}
	status.State, status.Other, status.Until = Retiring, old, at.Add(MaxLifetime)
	return status, nil
}

func (s *KeyStore) trustedKey(d *secretDir, name string) (TrustedKey, error) {
	key, err := d.loadKey(name)
	if err != nil {
		return TrustedKey{}, err
	}
	defer clear(key)
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return TrustedKey{}, err
	}
	return newTrustedKey(pub), nil
}

// oldKey returns the old key and the time of the switch.
func (s *KeyStore) oldKey(d *secretDir) (TrustedKey, time.Time, error) {
	text, err := d.readFile(s.oldName(), checkPublic)
	if err != nil {
		return TrustedKey{}, time.Time{}, err
	}
	pub, ok := parsePublic(text)
	info, err := d.root.Lstat(s.oldName())
	if err != nil || !ok {
		return TrustedKey{}, time.Time{}, bailey.Invalid.New(d.joinPath(s.oldName())+" is not a public key of the authority",
			"Restore the file from a copy, or remove it if all certificates of the old key have expired.")
	}
	return newTrustedKey(pub), info.ModTime(), nil
}

func newTrustedKey(pub ssh.PublicKey) TrustedKey {
	return TrustedKey{ssh.FingerprintSHA256(pub), string(bytes.TrimSuffix(formatPublic(pub), []byte("\n")))}
}
