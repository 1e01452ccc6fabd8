package ledger

import (
	"path/filepath"

	"bailey"
)

// Body returns a part that is kept beside the ledger, as it was committed to, or says why there is none.
func (r *Reader) Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	dir, err := openDir(filepath.Join(r.dir, "blobs"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b := bodies{dir: dir, keep: retention}
	return b.read(id, part, said)
}
