package audit

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
)

// The functions of this file explain why a text is not a signed or not a trusted checkpoint. The messages help an
// operator to find the right file or key.

// explainOpenError explains why [note.Open] accepted no signature.
func explainOpenError(signed []byte, t Trust, err error) *Bad {
	if bad := checkShape(signed); bad != nil {
		return bad
	}
	var wrong *note.InvalidSignatureError
	var none *note.UnverifiedNoteError
	switch {
	case errors.As(err, &none):
		origin, _, _ := strings.Cut(none.Note.Text, "\n")
		return t.newUntrustedBad(origin, signerIDs(signed))
	case errors.As(err, &wrong):
		return newUnsignedBad("the signature of %s+%08x on it is wrong: the checkpoint was changed, or another key of the same name signed it", wrong.Name, wrong.Hash)
	}
	return newUnsignedBad("it is no checkpoint: its signatures are not in their form")
}

// newUntrustedBad returns the error for a checkpoint that no trusted key signed. The error names the keys that signed it.
func (t Trust) newUntrustedBad(origin string, by []keyID) *Bad {
	var signed, trusted []string
	for _, id := range by {
		if id.name == origin {
			signed = append(signed, id.String())
		}
	}
	for _, k := range t.Keys {
		trusted = append(trusted, keyID{k.Name(), k.KeyHash()}.String())
	}
	switch {
	case len(signed) == 0:
		return newUnsignedBad("it carries no signature of the log %s", origin)
	case len(trusted) == 0:
		return newUnsignedBad("no key was given: it is signed by %s", strings.Join(signed, " and "))
	}
	return newUnsignedBad("it is signed by %s, and trusted is %s", strings.Join(signed, " and "),
		strings.Join(trusted, ", "))
}

func (k keyID) String() string { return fmt.Sprintf("%s+%08x", k.name, k.hash) }

// Cosigned reports whether a signed checkpoint carries signatures by parties other than its log. It verifies none of
// them.
func Cosigned(signed []byte) bool {
	c, err := ReadCheckpoint(signed)
	return err == nil && slices.ContainsFunc(signerIDs(signed), func(k keyID) bool { return k.name != c.Origin })
}

// maxJoined bounds the number of signature lines that [Join] returns.
const maxJoined = 32

// Join returns the checkpoint that both notes hold, with the signatures of both. If both have a signature by the same
// key, the one in b is used. Join verifies no signature. It refuses a name with unprintable characters.
func Join(a, b []byte) ([]byte, error) {
	text, _, _ := strings.Cut(string(a), "\n\n")
	if other, _, _ := strings.Cut(string(b), "\n\n"); other != text {
		return nil, errors.New("the notes hold two checkpoints")
	}
	var order []keyID
	line := map[keyID]string{}
	for _, signed := range [][]byte{a, b} {
		_, lines, _ := strings.Cut(string(signed), "\n\n")
		for l := range strings.Lines(lines) {
			k, ok := idOf(l)
			if !ok || strings.ContainsFunc(k.name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return nil, fmt.Errorf("%.80q is no signature", l)
			}
			if line[k] == "" {
				order = append(order, k)
			}
			line[k] = l
		}
	}
	if len(order) > maxJoined {
		return nil, fmt.Errorf("%d signatures, the most is %d", len(order), maxJoined)
	}
	joined := []byte(text + "\n\n")
	for _, k := range order {
		joined = append(joined, line[k]...)
	}
	return joined, nil
}

// signerIDs returns the keys that the signature lines of a note name, verified or not.
func signerIDs(signed []byte) (list []keyID) {
	_, lines, _ := strings.Cut(string(signed), "\n\n")
	for line := range strings.Lines(lines) {
		if k, ok := idOf(line); ok && len(list) < 100 {
			list = append(list, k)
		}
	}
	return list
}

func idOf(line string) (keyID, bool) {
	name, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "— "), " ")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) < 5 || !validKeyName(name) || !strings.HasPrefix(line, "— ") {
		return keyID{}, false
	}
	return keyID{name, binary.BigEndian.Uint32(raw)}, true
}

// checkShape returns a *Bad for the first line that cannot be part of a signed checkpoint, or nil.
func checkShape(signed []byte) *Bad {
	switch {
	case len(signed) == 0:
		return newUnsignedBad("it is no checkpoint: it is empty")
	case !utf8.Valid(signed):
		return newUnsignedBad("it is no checkpoint: it is not UTF-8")
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(signed), "\n"), "\n")
	if strings.HasSuffix(string(signed), "\n") {
		lines[len(lines)-1] += "\n"
	}
	for i, line := range lines {
		if what := lineProblem(i, strings.TrimSuffix(line, "\n")); what != "" {
			return newUnsignedBad("it is no checkpoint: line %d %s", i+1, what)
		}
		if !strings.HasSuffix(line, "\n") {
			return newUnsignedBad("it is no checkpoint: line %d does not end with a newline, and each has to", i+1)
		}
	}
	if len(lines) < 5 {
		return newUnsignedBad("it is no checkpoint: it ends after line %d, before a signature", len(lines))
	}
	return nil
}

// lineProblem says why line i of a checkpoint is malformed. It returns "" if the line is well-formed.
func lineProblem(i int, line string) string {
	if strings.HasSuffix(line, "\r") {
		return "ends in CR LF: the file was copied as text, which changed its bytes"
	}
	switch i {
	case 0:
		if !validKeyName(line) {
			return "is not the name of a log"
		}
	case 1:
		if n, err := strconv.ParseUint(line, 10, 64); err != nil || strconv.FormatUint(n, 10) != line {
			return "is not a number of entries"
		}
	case 2:
		if root, err := base64.StdEncoding.DecodeString(line); err != nil || len(root) != len(Hash{}) {
			return "is not 32 bytes in base64"
		}
	case 3:
		if line != "" {
			return "is not empty"
		}
	default:
		if _, ok := idOf(line); !ok {
			return "is no signature: — NAME BASE64"
		}
	}
	return ""
}
