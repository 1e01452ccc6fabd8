package sshca

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"bailey"
)

// Identity names the user, the machine, the sandbox and the certificate. It is the key id of the certificate, so sshd
// logs it at each login.
type Identity struct {
	User    string
	VM      string
	Sandbox string
	Cert    string // if it is empty in a request, the authority chooses a random id
}

// maxID is the maximum length of one id in bytes.
const maxID = 128

const (
	userMark    = "user:"
	vmMark      = "-vm:"
	sandboxMark = "-sbx:"
	certMark    = "-cert:"
)

// Text returns "user:{User}-vm:{VM}-sbx:{Sandbox}-cert:{Cert}". The error is Invalid if an id is empty, is longer than
// 128 bytes, has a character outside [A-Za-z0-9._@-], or could be confused with a delimiter.
func (i Identity) Text() (string, error) {
	for _, part := range i.idParts() {
		if err := checkID(part.name, part.id); err != nil {
			return "", err
		}
	}
	return userMark + i.User + vmMark + i.VM + sandboxMark + i.Sandbox + certMark + i.Cert, nil
}

type identityPart struct{ name, id string }

func (i Identity) idParts() [4]identityPart {
	return [4]identityPart{{"user", i.User}, {"VM", i.VM}, {"sandbox", i.Sandbox}, {"certificate", i.Cert}}
}

// checkID refuses an id that would make the identity ambiguous. A colon occurs only in the delimiters, therefore
// ParseIdentity needs no more than the character set. The names of the delimiters at the end of an id are refused too:
// in "user:a-vm-vm:b" a pattern without the colon, for example in a log search, finds another user.
func checkID(name, id string) error {
	switch {
	case id == "":
		return bailey.Invalid.New("the identity of the certificate has no "+name+" id",
			"Set the "+name+" id in the request.")
	case len(id) > maxID:
		return bailey.Invalid.New(fmt.Sprintf("the %s id has %d bytes, at most %d are allowed", name, len(id), maxID),
			"Use a shorter "+name+" id.")
	}
	for _, mark := range []string{userMark, vmMark, sandboxMark, certMark} {
		word := strings.TrimSuffix(mark, ":")
		if strings.Contains(id, mark) || mark != userMark && strings.HasSuffix(id, word) {
			return bailey.Invalid.New(fmt.Sprintf("the %s id %q contains the delimiter %q of the identity", name, id, word),
				fmt.Sprintf("Use a %s id that does not contain %q and does not end with %q.", name, mark, word))
		}
	}
	for _, c := range []byte(id) {
		if !isIDByte(c) {
			return bailey.Invalid.New(fmt.Sprintf("the %s id %q contains the character %q", name, id, string([]byte{c})),
				"Use only letters, digits and the characters . _ @ - in ids.")
		}
	}
	return nil
}

// IDFor returns an id for the name of a user or a host. A name with other characters than an id may have is changed as by
// [PathName], and a name that ends like a delimiter, for example db-vm, gets a dot.
func IDFor(name string) string {
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !isIDByte(byte(r)) }) {
		name = PathName(name)
	}
	for _, mark := range []string{vmMark, sandboxMark, certMark} {
		if strings.HasSuffix(name, strings.TrimSuffix(mark, ":")) {
			return name + "."
		}
	}
	return name
}

func isIDByte(c byte) bool { return isNameByte(c) || c == '.' || c == '@' }

// ParseIdentity is the reverse of Identity.Text, for example for the key id in a log of sshd. It accepts only a string
// that Text returns for the result. Any other is Invalid.
func ParseIdentity(s string) (Identity, error) {
	var i Identity
	rest, ok := strings.CutPrefix(s, userMark)
	if ok {
		i.User, rest, ok = strings.Cut(rest, vmMark)
	}
	if ok {
		i.VM, rest, ok = strings.Cut(rest, sandboxMark)
	}
	if ok {
		i.Sandbox, i.Cert, ok = strings.Cut(rest, certMark)
	}
	if !ok {
		return Identity{}, bailey.Invalid.New(fmt.Sprintf("%.200q is not the identity of a certificate of Bailey", s),
			"An identity has the form user:ID-vm:ID-sbx:ID-cert:ID.")
	}
	if _, err := i.Text(); err != nil {
		return Identity{}, err
	}
	return i, nil
}

// maxName is the maximum length of a new name, and of the readable part of a path element, in bytes.
const maxName = 64

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// CheckName returns an Invalid error if a new name, for example of a sandbox, is empty, longer than 64 bytes, or has a
// character outside [A-Za-z0-9_-]. A name that another system has chosen, for example a host name, is not checked here:
// PathName converts it.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return bailey.Invalid.New(fmt.Sprintf("the name has %d bytes, from 1 to %d are allowed", len(name), maxName),
			"Choose a shorter name that is not empty.")
	}
	for _, c := range []byte(name) {
		if !isNameByte(c) {
			return bailey.Invalid.New(fmt.Sprintf("the name %.80q contains the character %q", name, string([]byte{c})),
				"Use only letters, digits, _ and - in a new name.")
		}
	}
	return nil
}

// PathName returns a path element for a name of another system. Each byte outside [A-Za-z0-9_-] becomes "_". If that or
// a limit of 64 bytes changed the name, the result ends with "-" and 16 hexadecimal digits of the name's SHA-256, so
// that different names keep different elements, for example "a.b" and "a/b".
func PathName(name string) string {
	clean := []byte(name)
	for i, c := range clean {
		if !isNameByte(c) {
			clean[i] = '_'
		}
	}
	clean = clean[:min(len(clean), maxName)]
	if len(clean) > 0 && string(clean) == name {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return string(clean) + "-" + hex.EncodeToString(sum[:8])
}
