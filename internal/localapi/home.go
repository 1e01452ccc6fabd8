package localapi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"bailey"
	"bailey/internal/peer"
)

// Home is the directory that one gateway owns. It must have mode 0700 and belong to our user.
//
//	gateway.sock    operator verbs and calls
//	gateway.lock    held by the running gateway
//	start.lock      held by the client that starts a gateway
//	gateway.log     messages of the gateway for operators
//	settings.yaml   workspaces and redaction; see Settings
//	ledger/         00000001.jsonl …
//	index.db        index of the receipts; may be deleted
//	checkpoint      the checkpoint that the ledger's key signed last
//	checkpoint.cosigned  the last earlier checkpoint that witnesses cosigned
//	approvals.salt  salt for the commitments in approval requests
//	keys/           the private keys that sign for the ledger
type Home string

// Socket returns the path of the socket on which the gateway listens.
func (h Home) Socket() string { return filepath.Join(string(h), "gateway.sock") }

// Lock returns the path of the file that the running gateway locks.
func (h Home) Lock() string { return filepath.Join(string(h), "gateway.lock") }

// StartLock returns the path of the file that a client locks while it starts a gateway.
func (h Home) StartLock() string { return filepath.Join(string(h), "start.lock") }

// LogFile returns the path of the gateway's log for operators.
func (h Home) LogFile() string { return filepath.Join(string(h), "gateway.log") }

// Ledger returns the directory that holds the segments of the ledger.
func (h Home) Ledger() string { return filepath.Join(string(h), "ledger") }

// Caches returns the directory for the homes of build tools.
func (h Home) Caches() string { return filepath.Join(string(h), "caches") }

// Index returns the path of the index of the receipts.
func (h Home) Index() string { return filepath.Join(string(h), "index.db") }

// Keys returns the directory that holds the private keys that sign for the ledger.
func (h Home) Keys() string { return filepath.Join(string(h), "keys") }

// CheckpointName is the file of the newest checkpoint in the home. It is outside the ledger directory: an attacker that
// restores an older ledger must restore this file too.
const CheckpointName = "checkpoint"

// Checkpoint returns the path of the file named [CheckpointName].
func (h Home) Checkpoint() string { return h.Path(CheckpointName) }

// CosignedName is the file of the last checkpoint before the newest that witnesses cosigned.
const CosignedName = "checkpoint.cosigned"

// Cosigned returns the path of the file named [CosignedName].
func (h Home) Cosigned() string { return h.Path(CosignedName) }

// Path returns the path of a name in the home. It does not check the name.
func (h Home) Path(name string) string { return filepath.Join(string(h), name) }

// FindHome returns $BAILEY_HOME, or ~/.bailey if it is not set. It creates nothing.
func FindHome() (Home, error) {
	if dir := os.Getenv("BAILEY_HOME"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", bailey.Invalid.Errorf("set it to an absolute path",
				"BAILEY_HOME is %q, a relative path, which depends on the current directory", dir)
		}
		return Home(filepath.Clean(dir)), nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", bailey.Invalid.Wrap(err, "the home directory is unknown", "set BAILEY_HOME")
	}
	return Home(filepath.Join(user, ".bailey")), nil
}

// Create creates the directory if it is missing. If other users can access it, Create refuses it before anything is
// written there.
func (h Home) Create() error {
	err := os.Mkdir(string(h), 0o700)
	switch {
	case err == nil || errors.Is(err, fs.ErrExist):
		return h.Owned()
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(string(h), 0o700)
	}
	if err != nil {
		return bailey.Unavailable.Wrapf(err, "set BAILEY_HOME to a directory that you can write",
			"cannot create the home %s", h)
	}
	return nil
}

// Owned returns an error if another user owns the directory or can access it.
func (h Home) Owned() error { return peer.Owned(string(h)) }

// Own makes this process the only gateway of the home, until unlock is called or the process ends.
func (h Home) Own() (unlock func(), err error) {
	if unlock, err = LockFile(h.Lock()); err != nil {
		return nil, bailey.Conflict.Wrapf(err, "use the running gateway: there is one per home, and calls find it",
			"another gateway serves %s", h)
	}
	return unlock, nil
}
