package broker

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"bailey"
)

// security is the program of macOS that reads the Keychain. The broker starts no other.
const security = "/usr/bin/security"

// readItem reads a generic password. The Keychain asks the person the first time.
func (k *keyring) readItem(ctx context.Context) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := os.StartProcess(security, []string{security, "find-generic-password", "-s", k.service, "-a", k.account, "-w"},
		&os.ProcAttr{Env: []string{"HOME=" + os.Getenv("HOME"), "PATH=/usr/bin:/bin"}, Files: []*os.File{nil, w, nil}})
	w.Close()
	if err != nil {
		return nil, unavailableError(err, "", "cannot start %s", security)
	}
	stop := context.AfterFunc(ctx, func() { p.Kill(); r.SetReadDeadline(time.Now()) })
	defer stop()
	value, err := io.ReadAll(io.LimitReader(r, MaxValue+2))
	state, failed := p.Wait()
	switch {
	case ctx.Err() != nil:
		clear(value)
		return nil, bailey.Unavailable.Wrap(ctx.Err(), "the Keychain gave no answer", "unlock it, and allow security to read the item")
	case err != nil || failed != nil || !state.Success():
		clear(value)
		return nil, k.missingItem()
	}
	return bytes.TrimSuffix(value, []byte("\n")), nil
}
