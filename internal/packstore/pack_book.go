package packstore

import (
	"os"

	"bailey"
	"bailey/pack"
)

// ReadAt reads a bundle or, if dev is set, the current files of a directory.
func ReadAt(path string, dev bool, keys []pack.Key) (v *pack.Verified, data []byte, err error) {
	if dev {
		data, err = BundleOf(path)
	} else {
		data, err = ReadBundle(path)
	}
	if err == nil {
		v, err = Open(data, dev, keys)
	}
	return v, data, err
}

// BundleOf makes a bundle from a directory. Symlinks cannot lead out of the directory.
func BundleOf(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: dir + " is no directory that can be read", Err: err, Hint: "name the directory in which pack.yaml is"}
	}
	defer root.Close()
	return pack.MakeBundle(root.FS())
}
