package ledger

import (
	"path/filepath"

	"bailey"
)

// Body returns a part that is kept beside the ledger and matches its commitment, or an error with the reason.
func (r *Reader) Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	dir, err := openDir(filepath.Join(r.dir, "blobs"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b := bodies{dir: dir, keep: retention}
	return b.readBody(id, part, said)
}
