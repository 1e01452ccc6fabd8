package process

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/safefile"
	"bailey/internal/witness"

	"golang.org/x/mod/sumdb/note"
)

// openWitness returns the signer of cosignatures and its key. The first start makes the key.
func (s *settings) openWitness(host string) (note.Signer, audit.Key, error) {
	name := filepath.Join(s.dir, "witness.key")
	seed, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		seed = make([]byte, ed25519.SeedSize)
		rand.Read(seed)
		err = safefile.Create(name, seed, 0o600)
	}
	if err == nil && len(seed) != ed25519.SeedSize {
		err = errors.New("it is not a key")
	}
	var key audit.Key
	if err != nil {
		return nil, key, bailey.Unavailable.Wrap(err, "cannot use the key of the witness, "+name, "restore it from a copy")
	}
	private := ed25519.NewKeyFromSeed(seed)
	key, err = audit.WitnessKey("bailey-server/"+host, private.Public().(ed25519.PublicKey))
	return witness.NewCosigner(key, private, time.Now), key, err
}
