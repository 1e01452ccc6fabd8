// Package approver verifies answers to questions: by SSH keys (package sshsig) and by passkeys (package passkey). The
// gateway and the broker, which trust different lists, read and verify them here. It opens no file.
package approver

import (
	"errors"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/passkey"
	"bailey/internal/sshsig"
)

// Key is the key of an approver.
type Key struct {
	Name string
	ssh  *sshsig.Key // nil for a passkey
	pass passkey.Key
}

// ParseKey reads the key of an approver: the type and key of a .pub file, or the line of a passkey.
func ParseKey(name, key string) (Key, error) {
	if name == "" || strings.ContainsAny(name, " \t\r\n") {
		return Key{}, bailey.Invalid.New("the name of an approver must be a word", "")
	}
	if passkey.IsLine(key) {
		k, err := passkey.ParseKey(name, key)
		return Key{Name: name, pass: k}, err
	}
	keys, err := sshsig.ParseKeys([]byte(name + " " + key))
	if err != nil {
		return Key{}, err
	}
	if len(keys) != 1 || keys[0].Name != name {
		return Key{}, bailey.Invalid.New("it is not the type and key of a .pub file", "")
	}
	return Key{Name: name, ssh: &keys[0]}, nil
}

// Fingerprint identifies the key: SHA256:...
func (k Key) Fingerprint() string {
	if k.ssh != nil {
		return k.ssh.Fingerprint()
	}
	return k.pass.Fingerprint()
}

// CanTouch reports whether an answer by the key can have the level signed-touch.
func (k Key) CanTouch() bool { return k.ssh == nil || k.ssh.Hardware() }

// Signer is the approver who signed.
type Signer struct {
	Name    string
	Key     string // fingerprint
	Level   bailey.Level
	Counter uint32 // of a passkey; see [passkey.CheckCounter]
	Index   int    // of the key in the list
}

// Verify returns which of keys signed text. A passkey that can be copied to other devices has the level of a key in a
// file: no device is proven.
func Verify(text []byte, signature string, keys []Key) (s Signer, err error) {
	if passkey.IsAnswer(signature) {
		s, err = verifyPasskey(text, signature, keys)
	} else {
		s, err = verifySSH(text, signature, keys)
	}
	if err != nil {
		return Signer{}, err
	}
	for i, k := range keys {
		if k.Fingerprint() == s.Key {
			s.Index = i
			return s, nil
		}
	}
	return Signer{}, bailey.Internal.Wrap(errors.New("the signer is not in the list"), "the answer cannot be verified", "")
}

func verifySSH(text []byte, signature string, keys []Key) (Signer, error) {
	var list []sshsig.Key
	for _, k := range keys {
		if k.ssh != nil {
			list = append(list, *k.ssh)
		}
	}
	by, err := sshsig.Verify(text, []byte(signature), approvaltext.Namespace, list)
	s := Signer{Name: by.Name, Key: by.Key, Level: bailey.SignedSoftware}
	if by.Touch {
		s.Level = bailey.SignedTouch
	}
	return s, err
}

func verifyPasskey(text []byte, signature string, keys []Key) (Signer, error) {
	var list []passkey.Key
	for _, k := range keys {
		if k.ssh == nil {
			list = append(list, k.pass)
		}
	}
	by, err := passkey.Verify(text, signature, list)
	s := Signer{Name: by.Name, Key: by.Key, Level: bailey.SignedTouch, Counter: by.Counter}
	if by.Synced {
		s.Level = bailey.SignedSoftware
	}
	return s, err
}

// ParseKeys reads the keys of approvers, in their order. A name may have several keys and is one person. A key must
// have one name only: one person must not count as two.
func ParseKeys(list [][2]string) ([]Key, error) {
	var keys []Key
	seen := map[string]bool{}
	for _, l := range list {
		k, err := ParseKey(l[0], l[1])
		if err != nil {
			return nil, bailey.Invalid.Errorf("write the key as in a .pub file, or the line of a passkey",
				"approver %.60q: %v", l[0], err)
		}
		if seen[k.Fingerprint()] {
			return nil, bailey.Invalid.New(fmt.Sprintf("the key of %s is listed twice: one person must not count as two",
				k.Name), "")
		}
		seen[k.Fingerprint()] = true
		keys = append(keys, k)
	}
	return keys, nil
}
