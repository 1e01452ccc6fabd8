package auth

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"bailey"
	"bailey/internal/safefile"
)

// A Keyring seals secrets that the database holds. Its keys have versions, are in a file beside the database, and never
// leave it, so that a copy of the database gives none of the secrets. The newest key seals, and all of them open.
type Keyring struct {
	file string
	keys [][]byte // of 32 bytes; version 1 is the first
}

// maxKeys bounds the file.
const maxKeys = 1000

const keyFileHead = "# Keys of bailey-server. Keep a copy apart from backups of the database: without it, they cannot be used.\n"

// OpenKeyring reads a file of keys. If it does not exist, the error is NotFound.
func OpenKeyring(file string) (*Keyring, error) {
	text, err := safefile.ReadNamed(file, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.NotFound.Wrap(err, "there is no file of keys", "copy it from where you keep a copy")
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot read the file of keys", "see "+file)
	}
	if info, err := os.Stat(file); err != nil || safefile.Wide(info) {
		return nil, bailey.Invalid.Errorf("chmod 600 "+file, "other users may read the file of keys")
	}
	k := &Keyring{file: file}
	if k.keys, err = parseKeys(text); err != nil {
		return nil, bailey.Invalid.Wrapf(err, "copy it from where you keep a copy", "the file of keys %s is damaged", file)
	}
	return k, nil
}

// parseKeys reads lines of a version and a key.
func parseKeys(text []byte) (keys [][]byte, err error) {
	body, whole := bytes.CutSuffix(text, []byte("\n"))
	if !whole {
		return nil, errors.New("the last line is not complete")
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		version, encoded, _ := strings.Cut(line, " ")
		key, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(key) != 32 || version != strconv.Itoa(len(keys)+1) || len(keys) == maxKeys {
			return nil, fmt.Errorf("line %q… is not version %d and a key", version[:min(len(version), 10)], len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key")
	}
	return keys, nil
}

// NewKeyring creates a file with one key. If it exists, the error is fs.ErrExist.
func NewKeyring(file string) (*Keyring, error) {
	k := &Keyring{file: file, keys: [][]byte{newKey()}}
	return k, safefile.Create(file, k.formatKeys(), 0o600)
}

func newKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

func (k *Keyring) formatKeys() []byte {
	b := []byte(keyFileHead)
	for i, key := range k.keys {
		b = fmt.Appendf(b, "%d %s\n", i+1, base64.StdEncoding.EncodeToString(key))
	}
	return b
}

// Rotate adds a key, which seals from now on. The file has it before this returns.
func (k *Keyring) Rotate() error {
	if len(k.keys) == maxKeys {
		return bailey.Conflict.Errorf("remove old keys by hand", "the file of keys has %d keys", maxKeys)
	}
	next := &Keyring{file: k.file, keys: append(k.keys[:len(k.keys):len(k.keys)], newKey())}
	if err := safefile.Put(filepath.Dir(k.file), filepath.Base(k.file), next.formatKeys(), 0o600, nil); err != nil {
		return err
	}
	k.keys = next.keys
	return nil
}

// Newest is the version of the key that seals.
func (k *Keyring) Newest() int { return len(k.keys) }

// Seal encrypts a secret with AES-256-GCM and a random nonce. The result names the version of the key, and can be
// opened only under the same name.
func (k *Keyring) Seal(name, secret string) (string, error) {
	gcm, err := newCipher(k.keys[len(k.keys)-1])
	if err != nil {
		return "", err
	}
	sealed := gcm.Seal(nil, nil, []byte(secret), []byte(name))
	return "v" + strconv.Itoa(len(k.keys)) + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

func newCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Open is the reverse of Seal.
func (k *Keyring) Open(name, sealed string) (string, error) {
	head, body, _ := strings.Cut(sealed, ".")
	version, err := strconv.Atoi(strings.TrimPrefix(head, "v"))
	text, decoded := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || decoded != nil || version < 1 || head != "v"+strconv.Itoa(version) {
		return "", bailey.Conflict.Errorf("restore a backup", "the sealed secret %s is damaged", name)
	}
	if version > len(k.keys) {
		return "", bailey.NotFound.Errorf("copy the file of keys from where you keep a copy",
			"%s is sealed with key %d, and the file of keys has %d", name, version, len(k.keys))
	}
	gcm, err := newCipher(k.keys[version-1])
	if err != nil {
		return "", err
	}
	secret, err := gcm.Open(nil, nil, text, []byte(name))
	if err != nil {
		return "", bailey.Conflict.Errorf("copy the file of keys that belongs to this database",
			"%s is not sealed with key %d of this file, or was changed", name, version)
	}
	return string(secret), nil
}
