package gitsign

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxObject limits the text of a commit or tag that is signed, in bytes.
const MaxObject = 1 << 20

// object is the text of a commit or a tag before it is signed: what git hashes, without the header of its type and
// length (git-hash-object(1)).
type object struct {
	kind   string // commit or tag
	author ident  // only of a commit
	by     ident  // the committer or the tagger
}

// ident is a person and a time, as git writes them.
type ident struct {
	name, email string
	at          time.Time
}

// parseObject reads the text of exactly one commit or tag, as git writes it. Headers that are not known here are
// refused: a signature must not cover anything that was not checked.
func parseObject(text []byte) (o object, err error) {
	switch {
	case len(text) > MaxObject:
		return o, fmt.Errorf("it has more than %d bytes", MaxObject)
	case bytes.IndexByte(text, 0) >= 0:
		return o, fmt.Errorf("it has a NUL byte")
	}
	head, message, complete := bytes.Cut(text, []byte("\n\n"))
	if !complete {
		return o, fmt.Errorf("it is no commit and no tag: the line that ends its headers is missing")
	}
	r := &headers{rest: string(head) + "\n"}
	if strings.HasPrefix(r.rest, "tree ") {
		o, err = r.readCommit()
	} else if o, err = r.readTag(); err == nil && hasSignature(message) { // git appends the signature to the message
		err = fmt.Errorf("its message has a signature already")
	}
	return o, err
}

// hasSignature reports whether a line begins a signature as git reads it in a tag (gpg-interface.c of git).
func hasSignature(message []byte) bool {
	for _, first := range []string{"-----BEGIN PGP SIGNATURE-----", "-----BEGIN PGP MESSAGE-----",
		"-----BEGIN SIGNED MESSAGE-----", "-----BEGIN SSH SIGNATURE-----"} {
		if bytes.HasPrefix(message, []byte(first)) || bytes.Contains(message, []byte("\n"+first)) {
			return true
		}
	}
	return false
}

// headers reads the lines before the message one by one.
type headers struct{ rest string }

// nextValue returns the value of the next line if it has this name.
func (r *headers) nextValue(name string) (value string, ok bool) {
	line, rest, _ := strings.Cut(r.rest, "\n")
	if value, ok = strings.CutPrefix(line, name+" "); ok {
		r.rest = rest
	}
	return value, ok
}

func (r *headers) readCommit() (o object, err error) {
	o.kind = "commit"
	if tree, _ := r.nextValue("tree"); !isHash(tree) {
		return o, fmt.Errorf("its tree is no object name")
	}
	for {
		parent, ok := r.nextValue("parent")
		if !ok {
			break
		}
		if !isHash(parent) {
			return o, fmt.Errorf("a parent is no object name")
		}
	}
	if o.author, err = r.readIdent("author"); err != nil {
		return o, err
	}
	if o.by, err = r.readIdent("committer"); err != nil {
		return o, err
	}
	if encoding, ok := r.nextValue("encoding"); ok && !strings.EqualFold(encoding, "utf-8") {
		return o, fmt.Errorf("its encoding is %.40q, and only UTF-8 is signed", encoding)
	}
	for {
		if _, ok := r.nextValue("mergetag object"); !ok { // the signed tag that was merged, folded into one header
			break
		}
		for strings.HasPrefix(r.rest, " ") {
			_, r.rest, _ = strings.Cut(r.rest, "\n")
		}
	}
	return o, r.checkEnd()
}

func (r *headers) readTag() (o object, err error) {
	o.kind = "tag"
	if hash, _ := r.nextValue("object"); !isHash(hash) {
		return o, fmt.Errorf("it is no commit and no tag")
	}
	switch kind, _ := r.nextValue("type"); kind {
	case "commit", "tag", "tree", "blob":
	default:
		return o, fmt.Errorf("the type of the tagged object is %.40q", kind)
	}
	if name, ok := r.nextValue("tag"); !ok || name == "" {
		return o, fmt.Errorf("the tag has no name")
	}
	if o.by, err = r.readIdent("tagger"); err != nil {
		return o, err
	}
	return o, r.checkEnd()
}

// checkEnd returns an error if a header is left.
func (r *headers) checkEnd() error {
	name, _, _ := strings.Cut(r.rest, " ")
	switch {
	case r.rest == "":
		return nil
	case strings.HasPrefix(name, "gpgsig"):
		return fmt.Errorf("it has a signature already")
	}
	return fmt.Errorf("its header %.40q is not expected there", name)
}

func (r *headers) readIdent(header string) (p ident, err error) {
	value, ok := r.nextValue(header)
	if !ok {
		return p, fmt.Errorf("its %s is missing", header)
	}
	name, rest, ok := strings.Cut(value, " <")
	email, when, ok2 := strings.Cut(rest, "> ")
	seconds, zone, ok3 := strings.Cut(when, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if !ok || !ok2 || !ok3 || err != nil || n < 0 || strconv.FormatInt(n, 10) != seconds || !isZone(zone) ||
		strings.ContainsAny(name+email, "<>") {
		return p, fmt.Errorf("its %s is not written as git writes it", header)
	}
	return ident{name, email, time.Unix(n, 0)}, nil
}

// isHash reports whether s is the name of an object, with SHA-1 or SHA-256.
func isHash(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func isZone(s string) bool {
	return len(s) == 5 && (s[0] == '+' || s[0] == '-') && strings.Trim(s[1:], "0123456789") == ""
}
