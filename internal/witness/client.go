package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bailey"
	"bailey/audit"
	"bailey/internal/terminal"
)

// ParseURL returns the URL of a witness for checkpoints. It must be https, or http on this machine.
func ParseURL(at string) (string, error) {
	u, err := url.Parse(at)
	if err == nil && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && net.ParseIP(u.Hostname()).IsLoopback()) {
		return strings.TrimSuffix(u.String(), "/") + addPath, nil
	}
	return "", bailey.Invalid.Wrap(err, terminal.Shown(at)+" is not the URL of a witness",
		"use https://…, or http:// with a loopback address")
}

// Ask sends a request to the URL of a witness. It returns the signature lines of the witness, or nil and the size that it saw last.
func Ask(ctx context.Context, target string, request []byte) (lines []byte, size uint64, err error) {
	unreachable := func(what string, err error) error {
		return bailey.Unavailable.Wrap(err, "the witness at "+terminal.Shown(target)+" "+terminal.Shown(what),
			"ask again later; the checkpoint is signed and kept without its cosignature")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(request))
	if err != nil {
		return nil, 0, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects") }}
	answer, err := client.Do(post)
	if err != nil {
		return nil, 0, unreachable("does not answer", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, audit.MaxNote))
	if err != nil {
		return nil, 0, unreachable("broke off", err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return body, 0, nil
	case http.StatusForbidden:
		return nil, 0, bailey.Unavailable.New(terminal.Shown(fmt.Sprintf("the witness at %s does not trust the key that signed this checkpoint: %.600s", target, bytes.TrimSpace(body))),
			newKey)
	case http.StatusConflict:
		size, err := strconv.ParseUint(strings.TrimSuffix(string(body), "\n"), 10, 63)
		if err != nil {
			return nil, 0, unreachable("refuses without stating the size that it saw", err)
		}
		return nil, size, nil
	}
	return nil, 0, unreachable(fmt.Sprintf("refuses: %s: %.300s", answer.Status, bytes.TrimSpace(body)), nil)
}

// mostLines is the maximum number of signature lines in an answer. A witness may sign with several of its keys.
const mostLines = 16

// AddLines adds the cosignatures of trusted witnesses in lines to a checkpoint. It returns an error if there are none.
func AddLines(signed, lines []byte, key audit.Key, witnesses []audit.Key) ([]byte, error) {
	t := audit.Trust{Keys: []audit.Key{key}, Witnesses: witnesses}
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	own := ownLines(signed, key.Name())
	err := errors.New("none of the given keys made this cosignature")
	added := signed
	for n, line := range slices.Collect(bytes.SplitAfterSeq(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n"))) {
		if n == mostLines || !bytes.HasPrefix(line, []byte("— ")) || !bytes.HasSuffix(lines, []byte("\n")) {
			err = errors.New("it is not a list of signature lines")
			break
		}
		one := slices.Concat(text, []byte("\n\n"), own, bytes.TrimSuffix(line, []byte("\n")), []byte("\n"))
		s, oerr := t.Open(one)
		if oerr == nil && len(s.Cosignatures) == 1 {
			added, err = audit.Join(added, one)
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, bailey.Denied.Wrap(err, "the answer of the witness has no cosignature of a trusted key",
			"compare --witness-key with the output of bailey audit witness --show there; the checkpoint is kept without the cosignature")
	}
	return added, nil
}

// ownLines returns the signature lines of a note that carry the given name.
func ownLines(signed []byte, name string) []byte {
	var lines []byte
	for line := range bytes.SplitAfterSeq(signed, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("— "+name+" ")) {
			lines = append(lines, line...)
		}
	}
	return lines
}
