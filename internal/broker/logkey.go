package broker

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// KeysName is the directory, inside the broker's, with the keys that sign for logs: PEM of PKCS #8, each in a file
// named after its public half.
const KeysName = "keys"

const (
	keyType = "PRIVATE KEY"
	maxPEM  = 4 << 10 // bytes of a key file
	// maxKeys limits the keys that one uid may have. A key is never deleted, and a gateway must not fill the disk.
	maxKeys = 64
)

// logKey is the journal's record of a key: the uid that it was made for, and the last text that it signed.
type logKey struct {
	uid    int
	origin string // "" before the first signature
	size   uint64
	root   string // "" before the first checkpoint
}

// refusalReason returns why a key must not sign a text, or "" if it may. A key never signs a smaller size than before,
// another tree of the same size, or for another log. A key that signed checkpoints can no longer be a first key.
func (k logKey) refusalReason(t logText) string {
	switch {
	case k.origin != "" && k.origin != t.origin:
		return "it signs for another log"
	case k.root == "":
		return ""
	case t.root == "":
		return "it has already signed checkpoints and been announced"
	case t.size < k.size:
		return "it has signed a larger checkpoint"
	case t.size == k.size && t.root != k.root:
		return "it has signed another tree of this size"
	}
	return ""
}

// afterSigning returns the record of the key after it signed t.
func (k logKey) afterSigning(t logText) logKey {
	k.origin = t.origin
	if t.root != "" {
		k.size, k.root = t.size, t.root
	}
	return k
}

// makeKey makes a key for the uid that asks. The key is on the disk, and then in the journal, before its public half is
// returned.
func (l *clientConn) makeKey() (r madeKey, err error) {
	l.s.signs.Lock()
	defer l.s.signs.Unlock()
	if err := l.s.table.Load().mayBorrow(l.UID); err != nil {
		return r, err
	}
	if len(l.s.journal.keysOf(l.UID)) >= maxKeys {
		return r, deniedError("use one of them; each ledger needs one key only",
			"uid %d has already had %d keys made, the maximum", l.UID, maxKeys)
	}
	public, private, err := ed25519.GenerateKey(nil) // nil means crypto/rand
	if err != nil {
		return r, err
	}
	defer clear(private)
	r.Key = hex.EncodeToString(public)
	if err := l.s.putKey(r.Key, private); err != nil {
		return madeKey{}, err
	}
	e := event{At: l.s.Now().UTC(), Event: "key", Key: r.Key, UID: &l.UID, PID: l.PID, Exe: l.s.exe(l.PID)}
	if err := l.s.journal.appendEvent(e, true); err != nil {
		return madeKey{}, err
	}
	return r, nil
}

// listKeys lists the keys of the uid that asks, or only the requested one.
func (l *clientConn) listKeys(a brokerRequest) (r keptKeys, err error) {
	if err := l.s.table.Load().mayBorrow(l.UID); err != nil {
		return r, err
	}
	r.Keys = []string{}
	for _, k := range l.s.journal.keysOf(l.UID) {
		if a.Key == "" || a.Key == k {
			r.Keys = append(r.Keys, k)
		}
	}
	return r, nil
}

// signText signs the text of a log. The line in the journal is on the disk before the signature leaves.
func (l *clientConn) signText(a brokerRequest) (r signature, err error) {
	l.s.signs.Lock() // the record must not change between check and write
	defer l.s.signs.Unlock()
	if err := l.s.table.Load().mayBorrow(l.UID); err != nil {
		return r, err
	}
	public, ok := parsePublic(a.Key)
	k, have := l.s.journal.findKey(a.Key)
	if !ok || !have || k.uid != l.UID { // the error must not reveal that another uid has the key
		return r, noKey(a.Key, nil)
	}
	t, ok := readLogText(a.Text, public)
	if !ok {
		return r, bailey.Denied.New("the broker's key signs only checkpoints and the announcement of the log's first key, and this text is neither",
			"use a gateway and a broker of one version; a log whose key is in the broker keeps it")
	}
	if why := k.refusalReason(t); why != "" {
		return r, bailey.Conflict.New("the broker's key cannot sign this: "+why,
			"the ledger was cut, restored or replaced, or something else has its key: keep it, find out which, then start a new one")
	}
	private, err := l.s.readKey(a.Key)
	if err != nil {
		return r, err
	}
	defer clear(private)
	e := event{At: l.s.Now().UTC(), Event: "sign", Key: a.Key, Origin: t.origin, Size: t.size, Root: t.root,
		UID: &l.UID, PID: l.PID, Exe: l.s.exe(l.PID)}
	if err := l.s.journal.appendEvent(e, true); err != nil {
		return r, err
	}
	r.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(a.Text)))
	return r, nil
}

func noKey(key string, err error) error {
	return bailey.NotFound.Wrap(err, "the broker has no key "+cmp.Or(key, "without a name")+" for this uid",
		"restore the broker's directory from a copy, keys and journal of the same time; without it no checkpoint can be signed, and a new ledger is needed")
}

// keyDir returns the directory of the keys. Only the broker's user may have access to it.
func (s *Server) keyDir() (string, error) {
	dir := filepath.Join(s.Dir, KeysName)
	err := s.perm(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = notOurs(dir, err)
	}
	return dir, err
}

// putKey writes a key to the disk: the complete file under its name, or no file.
func (s *Server) putKey(name string, private ed25519.PrivateKey) error {
	dir, err := s.keyDir()
	if errors.Is(err, fs.ErrNotExist) {
		if err = errors.Join(os.Mkdir(dir, 0o700), syncDir(s.Dir)); err == nil {
			dir, err = s.keyDir()
		}
	}
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	defer clear(der)
	text := pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der})
	defer clear(text)
	if err := putFile(dir, name+".pem", text); err != nil {
		return unavailableError(err, "check the disk of the broker's directory",
			"cannot write the key, so it was not made")
	}
	return nil
}

// putFile first writes to a temporary name that no code reads, and removes such a file if a crash left one.
func putFile(dir, name string, text []byte) error {
	temp := filepath.Join(dir, "key.new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	return errors.Join(err, syncDir(dir))
}

// readKey reads the private half, for one signature.
func (s *Server) readKey(name string) (ed25519.PrivateKey, error) {
	dir, err := s.keyDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noKey(name, err)
	}
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".pem")
	text, err := readPrivate(file, maxPEM)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noKey(name, err)
	}
	if err != nil {
		return nil, err
	}
	defer clear(text)
	private := parsePEM(text)
	if private == nil || hex.EncodeToString(private.Public().(ed25519.PublicKey)) != name {
		return nil, bailey.Conflict.New(file+" is not the private key that its name states",
			"restore it from a copy of the broker's directory: it was replaced")
	}
	return private, nil
}

// parsePEM parses an Ed25519 key, or returns nil. It returns no parser error, because that may contain a key.
func parsePEM(text []byte) ed25519.PrivateKey {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil
	}
	defer clear(block.Bytes)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	private, _ := key.(ed25519.PrivateKey)
	return private
}

// canAppend reports whether a line about a key may follow the lines before it.
func (j *journal) canAppend(e event) bool {
	if e.Event != "key" && e.Event != "sign" {
		return e.Key == "" && e.Origin == "" && e.Size == 0 && e.Root == ""
	}
	_, ok := parsePublic(e.Key)
	k, have := j.keys[e.Key]
	switch {
	case !ok || e.UID == nil:
		return false
	case e.Event == "key":
		return !have && e.Origin == "" && e.Size == 0 && e.Root == ""
	}
	t := logText{e.Origin, e.Size, e.Root}
	return have && k.uid == *e.UID && validOrigin(t.origin) && t.size <= maxTree &&
		(t.root == "" && t.size == 0 || validRoot(t.root)) && k.refusalReason(t) == ""
}

// findKey returns the journal's record of a key.
func (j *journal) findKey(public string) (logKey, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k, ok := j.keys[public]
	return k, ok
}

// keysOf returns the public halves of a uid's keys.
func (j *journal) keysOf(uid int) (list []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for public, k := range j.keys {
		if k.uid == uid {
			list = append(list, public)
		}
	}
	slices.Sort(list)
	return list
}

// logText is the only kind of text that a log's key signs here: a checkpoint (c2sp.org/tlog-checkpoint) of three lines,
// or the statement that this key is the log's first, which has no size and no root. The broker never signs that a key
// follows another.
type logText struct {
	origin string
	size   uint64
	root   string // base64; "" for the statement of a first key
}

// Limits as in package audit.
const (
	maxOrigin = 512
	maxTree   = 1 << 61
)

// firstKey begins the statement of a first key, as audit.KeyChange writes it. No checkpoint begins like this, because
// its second line is a number.
const firstKey = "bailey.audit/key/v1\nnone\n"

// readLogText parses a text that the key public should sign. There is one encoding: the parsed text, written again,
// must be the same.
func readLogText(text string, public ed25519.PublicKey) (logText, bool) {
	if rest, ok := strings.CutPrefix(text, firstKey); ok {
		name, _, _ := strings.Cut(rest, "+")
		return logText{origin: name}, validOrigin(name) && text == firstKeyText(name, public)
	}
	line := strings.Split(text, "\n")
	if len(line) != 4 || !validOrigin(line[0]) {
		return logText{}, false
	}
	size, err := strconv.ParseUint(line[1], 10, 64)
	if err != nil || size > maxTree || !validRoot(line[2]) {
		return logText{}, false
	}
	c := logText{line[0], size, line[2]}
	return c, text == fmt.Sprintf("%s\n%d\n%s\n", c.origin, c.size, c.root)
}

// firstKeyText contains the key as an Ed25519 verifier key, type 1 (c2sp.org/signed-note).
func firstKeyText(name string, public ed25519.PublicKey) string {
	material := append([]byte{1}, public...)
	id := sha256.Sum256(append([]byte(name+"\n"), material...))
	return fmt.Sprintf("%s%s+%x+%s\n", firstKey, name, id[:4], base64.StdEncoding.EncodeToString(material))
}

func validOrigin(name string) bool {
	return name != "" && len(name) <= maxOrigin && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r)
		})
}

// validRoot requires 32 bytes in their only encoding.
func validRoot(root string) bool {
	b, err := base64.StdEncoding.DecodeString(root)
	return err == nil && len(b) == sha256.Size && base64.StdEncoding.EncodeToString(b) == root
}

// parsePublic parses a public half as in messages and the journal: 64 hexadecimal digits, in lower case.
func parsePublic(text string) (ed25519.PublicKey, bool) {
	b, err := hex.DecodeString(text)
	return b, err == nil && len(b) == ed25519.PublicKeySize && hex.EncodeToString(b) == text
}
