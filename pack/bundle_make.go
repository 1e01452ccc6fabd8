package pack

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"bailey"
)

// MakeBundle returns an unsigned bundle of all files below fsys, with the name and version of the manifest. The
// manifest must be valid. The result is checked with ReadBundle.
func MakeBundle(fsys fs.FS) ([]byte, error) {
	files, err := filesOf(fsys)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == ManifestName })
	if i < 0 {
		return nil, bailey.Invalid.New("the directory has no "+ManifestName, "bailey pack scaffold NAME writes one")
	}
	p, err := Parse(ManifestName, files[i].bytes)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(indexOf(p.Name, p.Version, files) + "\n\n")
	for _, f := range files {
		b.Write(f.bytes)
	}
	if _, err := ReadBundle([]byte(b.String())); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// filesOf reads the files of a directory, sorted by path. It refuses everything except files and directories.
func filesOf(fsys fs.FS) (files []File, err error) {
	err = fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case checkBundlePath(path) != nil:
			return bundleInputError("%s cannot be part of a bundle by its name", safeText(path))
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return bundleInputError("%s is no plain file", path)
		case len(files) == maxFiles:
			return bundleInputError("there are more than %d files", maxFiles)
		}
		f, err := fileOf(fsys, path)
		files = append(files, f)
		return err
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func fileOf(fsys fs.FS, path string) (f File, err error) {
	in, err := fsys.Open(path)
	if err != nil {
		return f, err
	}
	defer in.Close()
	f.Path = path
	if f.bytes, err = io.ReadAll(io.LimitReader(in, maxBundleFile+1)); err != nil {
		return f, err
	}
	if f.Size, f.SHA256 = len(f.bytes), sumOf(f.bytes); f.Size > maxBundleFile {
		return f, bundleInputError("%s is larger than %d bytes", path, maxBundleFile)
	}
	return f, nil
}

func bundleInputError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...),
		"a bundle holds pack.yaml and what belongs to it, as README.md and LICENSE: keep the pack in a directory of its own")
}
