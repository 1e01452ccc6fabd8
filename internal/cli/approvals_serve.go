package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// answersDoor is the configuration of that interface.
type answersDoor struct {
	listening
	at, token string
	yes       bool
}

func (a *App) approvalsServe() *cobra.Command {
	var d answersDoor
	cmd := &cobra.Command{
		Use: "serve", Short: "Take signed answers over HTTP",
		Long: `Show open questions and take answers over HTTP, for programs that people answer with. A grant has to be signed by an
approver of settings.yaml: an unsigned one is refused, whatever the rules want. docs/approvals.md has the requests.

Whoever asks shows the token of --token-file, which is made where there is none. It listens on this machine alone unless
there is a certificate; then --host says by which names it is reached. A page of another origin gets nothing unless
--origin names it.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey approvals serve --listen 127.0.0.1:7443 --token-file ~/.bailey-token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveAnswers(cmd.Context(), d) },
	}
	f := cmd.Flags()
	f.StringVar(&d.at, "listen", "127.0.0.1:0", "the `address` and port")
	f.StringVar(&d.token, "token-file", "", "a `file` with the token, 0600")
	d.flags(cmd)
	f.BoolVar(&d.yes, "yes", false, "do not ask")
	return cmd
}

func (a *App) serveAnswers(ctx context.Context, d answersDoor) error {
	op, err := a.Operator("approvals serve", d.yes)
	if err != nil {
		return err
	}
	if d.token == "" {
		return &bailey.Error{Kind: bailey.Invalid, Message: "there is no --token-file", Hint: "name a file; one that is not there is made"}
	}
	if err := d.check(d.at); err != nil {
		return err
	}
	token, err := httpToken(d.token)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	if !d.yes {
		if err := a.Confirm(ctx, fmt.Sprintf("Take signed answers at %s?", terminal.Shown(d.at))); err != nil {
			return err
		}
	}
	l, err := d.listen(d.at)
	if err != nil {
		return err
	}
	defer l.Close()
	args := map[string]any{"listen": l.Addr().String(), "tls": d.cert != ""}
	if err := Command(ctx, c, op, apitype.ApprovalsServeEvent, args, new(map[string]bool)); err != nil {
		return err
	}
	h := &answersHTTP{client: c, operator: op, token: token, room: make(chan struct{}, maxHTTPOpen)}
	h.hosts, h.origins = d.names(l.Addr())
	fmt.Fprintf(a.Stderr, "bailey: answers are taken at %s://%s\n", d.scheme(), l.Addr())
	if l, err = d.secured(l); err != nil {
		return err
	}
	return h.serve(ctx, l)
}

// Limits in bytes. The minimum makes a token impossible to guess. The maximum keeps a file of one to a line.
const minToken, maxToken = 32, 512

// httpToken reads the token from the file, or creates the file. A client with the token can read every question.
func httpToken(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|safefile.NoWait|safefile.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(name)
	}
	bad := func(why, cure string, err error) error {
		return &bailey.Error{Kind: bailey.Denied, Message: "the token's file " + terminal.Shown(name) + " " + why, Hint: cure, Err: err}
	}
	if err != nil {
		return "", bad("cannot be read", "name a regular file of your own, or none", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", bad("is no regular file", "name a regular file of your own, or none", nil)
	case safefile.Wide(info):
		return "", bad("can be read by others", "chmod 600 it, and put another token in it", nil)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(token) < minToken || len(b) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", bad(fmt.Sprintf("holds no token: that is a line of %d to %d printable characters", minToken, maxToken), "take the file away, and the next start makes another", nil)
	}
	return token, nil
}

func makeToken(name string) (string, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	token := hex.EncodeToString(b[:])
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(token + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Unavailable, Message: "the token's file " + terminal.Shown(name) + " cannot be made", Err: err, Hint: "name a file in a directory that you may write"}
	}
	return token, nil
}
