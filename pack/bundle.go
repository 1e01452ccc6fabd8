package pack

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"bailey"
)

// A bundle, NAME-VERSION.baileypack, is one pack in one file. It consists of an index, which is a signed note
// (c2sp.org/signed-note), an empty line, and the contents of the files, in the order of the index and without gaps or
// trailing bytes.
//
//	bailey.pack/v1
//	demo 1.2.0
//	0644 17 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 README.md
//	0644 402 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae pack.yaml
//	                                     an empty line ends the index
//	— acme ZhVx…=                        the signature, if there is one
//	                                     an empty line ends the note
//	…                                    17 bytes, then 402
//
// A line of the index has mode, size in decimal, SHA-256 in hex, and path. The lines are sorted by path as bytes. An
// index has only one valid encoding, and a reader must refuse an index that differs from its own encoding. A bundle
// therefore contains no duplicate, ambiguous, compressed or hidden entries, and none that refer to another place.
//
// The digest of a bundle is the SHA-256 of its index up to and including the newline of its last line. It covers the
// contents of every file and does not depend on signatures. The signature is made over the same text. The first line of
// the note separates these signatures from other uses of the same key.
const bundleFormat = "bailey.pack/v1"

// ManifestName is the file that every bundle must contain.
const ManifestName = "pack.yaml"

// Limits of a bundle. They are checked before anything is read. Nothing is unpacked.
const (
	MaxBundle     = 8 << 20 // bytes in total
	maxBundleFile = 1 << 20 // bytes of one file
	maxFiles      = 64
	maxIndex      = 32 << 10 // bytes, including the signature
	maxPath       = 200      // characters
	noteHash      = 4        // bytes of the key hash before the signature in a note
	onlyMode      = "0644"
)

// pathSegment must not begin with a dot or a dash, so no name is hidden, refers to a parent directory or looks like an
// option.
var pathSegment = lazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// File is one file of a bundle.
type File struct {
	Path   string `json:"path"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
	bytes  []byte
}

// Bytes returns the contents of the file. The caller must not change them.
func (f File) Bytes() []byte { return f.bytes }

// NewFile returns a file for [BundleFiles]. The caller must not change data.
func NewFile(path string, data []byte) File {
	return File{Path: path, Size: len(data), SHA256: sumOf(data), bytes: data}
}

// Bundle is a bundle whose files match its index. Its author is not verified, see [Verify] and [Bundle.Dev].
type Bundle struct {
	Name    string
	Version string
	Digest  string // SHA-256 of the index, hex
	Signer  string // name of the key that the signature claims; "" if it is unsigned
	Files   []File // sorted by path

	index     string // the signed text
	signature string // signature line of the note; "" if it is unsigned
}

// ReadBundle reads a bundle and compares every file with the index. It does not parse the manifest.
func ReadBundle(data []byte) (*Bundle, error) {
	b, rest, err := readIndex(data)
	if err != nil {
		return nil, err
	}
	for i := range b.Files {
		f := &b.Files[i]
		if f.Size > len(rest) {
			return nil, bundleError("the bundle is truncated: %s has %d of its %d bytes", f.Path, len(rest), f.Size)
		}
		f.bytes, rest = rest[:f.Size:f.Size], rest[f.Size:]
		if sumOf(f.bytes) != f.SHA256 {
			return nil, bundleError("%s does not match the index: its bytes were changed", f.Path)
		}
	}
	if len(rest) > 0 {
		return nil, bundleError("%d bytes follow the last file, %s", len(rest), b.Files[len(b.Files)-1].Path)
	}
	return b, nil
}

// readIndex reads the index and the signature, but not the contents of the files.
func readIndex(data []byte) (b *Bundle, rest []byte, err error) {
	if what := archiveKind(data); what != "" {
		return nil, nil, bundleError("this is %s, not a bundle", what)
	}
	if len(data) > MaxBundle {
		return nil, nil, bundleError("a bundle can have at most %d bytes", MaxBundle)
	}
	head := data[:min(len(data), maxIndex)]
	index, _, ended := bytes.Cut(head, []byte("\n\n"))
	if !ended {
		return nil, nil, bundleError("the index does not end within %d bytes", maxIndex)
	}
	b = &Bundle{index: string(index) + "\n"}
	rest = data[len(index)+2:]
	if rest, err = b.readSignature(rest); err != nil {
		return nil, nil, err
	}
	if err := b.readLines(strings.Split(string(index), "\n")); err != nil {
		return nil, nil, err
	}
	if b.index != indexOf(b.Name, b.Version, b.Files) {
		return nil, nil, bundleError("the index is not in canonical form")
	}
	b.Digest = sumOf([]byte(b.index))
	return b, rest, nil
}

// readSignature reads the signature line of the note, if there is one, and the empty line.
func (b *Bundle) readSignature(rest []byte) ([]byte, error) {
	if line, found := bytes.CutPrefix(rest, []byte("— ")); found {
		end := bytes.IndexByte(line, '\n')
		name, code, _ := strings.Cut(string(line[:max(end, 0)]), " ")
		sum, err := base64.StdEncoding.Strict().DecodeString(code)
		if end < 0 || end > maxIndex || !keyName().MatchString(name) || err != nil ||
			len(sum) != noteHash+ed25519.SignatureSize ||
			string(line[:end]) != name+" "+base64.StdEncoding.EncodeToString(sum) {
			return nil, bundleError("cannot parse the signature's line")
		}
		b.Signer, b.signature = name, "— "+name+" "+code+"\n"
		rest = line[end+1:]
	}
	if len(rest) == 0 || rest[0] != '\n' {
		return nil, bundleError("after the index there must be one signature or an empty line")
	}
	return rest[1:], nil
}

func (b *Bundle) readLines(lines []string) error {
	if lines[0] != bundleFormat {
		return bundleError("the first line is not %s", bundleFormat)
	}
	if len(lines) < 3 || len(lines) > 2+maxFiles {
		return bundleError("a bundle must have from 1 to %d files, not %d", maxFiles, max(0, len(lines)-2))
	}
	var err error
	b.Name, b.Version, _ = strings.Cut(lines[1], " ")
	if err = checkNameVersion(b.Name, b.Version); err != nil {
		return err
	}
	for i, line := range lines[2:] {
		f, err := readFile(line)
		if err != nil {
			return err
		}
		if i > 0 && f.Path <= b.Files[i-1].Path {
			return bundleError("%s is twice in the index, or out of order", f.Path)
		}
		b.Files = append(b.Files, f)
	}
	return checkFiles(b.Files)
}

// readFile reads a line of the index.
func readFile(line string) (f File, err error) {
	words := strings.SplitN(line, " ", 4)
	if len(words) != 4 {
		return f, bundleError("the index has the malformed line \"%s\"", safeText(line))
	}
	f = File{Path: words[3], SHA256: words[2]}
	if err := checkBundlePath(f.Path); err != nil {
		return f, err
	}
	if words[0] != onlyMode {
		return f, bundleError("%s has the mode %s, but a bundle must have only regular files of mode %s", f.Path,
			safeText(words[0]), onlyMode)
	}
	if f.Size, err = strconv.Atoi(words[1]); err != nil || f.Size < 0 || f.Size > maxBundleFile {
		return f, bundleError("%s has the size %s, but a file may have at most %d bytes", f.Path, safeText(words[1]),
			maxBundleFile)
	}
	if raw, err := hex.DecodeString(f.SHA256); err != nil || len(raw) != sha256.Size ||
		hex.EncodeToString(raw) != f.SHA256 {
		return f, bundleError("%s has no SHA-256 in lower case hex", f.Path)
	}
	return f, nil
}

// checkFiles refuses names that a file system could treat as equal, a bundle without a manifest, and a bundle that is too
// large.
func checkFiles(files []File) error {
	spelt, whole, size := map[string]string{}, map[string]bool{}, 0
	for _, f := range files {
		size += f.Size
		for i, c := range f.Path + "/" {
			if c != '/' {
				continue
			}
			above := f.Path[:i]
			if other, ok := spelt[strings.ToLower(above)]; ok && other != above {
				return bundleError("%s and %s differ only in case", other, above)
			}
			if whole[above] {
				return bundleError("%s is a file, and %s is below it", above, f.Path)
			}
			spelt[strings.ToLower(above)] = above
		}
		whole[f.Path] = true
	}
	switch {
	case size > MaxBundle:
		return bundleError("the files have %d bytes in total, but a bundle can have at most %d", size, MaxBundle)
	case !whole[ManifestName]:
		return bundleError("it has no %s", ManifestName)
	}
	return nil
}

// checkBundlePath refuses a path unless it consists of plain names below the bundle.
func checkBundlePath(path string) error {
	segments := strings.Split(path, "/")
	if len(path) > maxPath || slices.ContainsFunc(segments, func(s string) bool { return !pathSegment().MatchString(s) }) {
		return bundleError("\"%s\" cannot be the name of a file in a bundle: use letters, digits, _, - and . inside, separated by /, below the pack's directory", safeText(path))
	}
	return nil
}

// checkNameVersion refuses an invalid name or version. Versions must be ordered: MAJOR.MINOR.PATCH as in semver.org, with -WORDS
// for a pre-release. Build metadata has no order and is refused.
func checkNameVersion(name, v string) error {
	switch {
	case !packName().MatchString(name):
		return bundleError("a bundle cannot have the name \"%s\"", safeText(name))
	case !version().MatchString(v) || semver.Canonical("v"+v) != "v"+v:
		return bailey.Invalid.Errorf("write MAJOR.MINOR.PATCH, for example 1.0.0 or 1.1.0-rc.1, so that versions can be ordered",
			"a bundle cannot have the version \"%s\"", safeText(v))
	}
	return nil
}

// CompareVersions returns a number below 0, 0 or above 0 if version a of a bundle is older than b, the same, or newer.
func CompareVersions(a, b string) int { return semver.Compare("v"+a, "v"+b) }

func indexOf(name, version string, files []File) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s %s\n", bundleFormat, name, version)
	for _, f := range files {
		fmt.Fprintf(&b, "%s %d %s %s\n", onlyMode, f.Size, f.SHA256, f.Path)
	}
	return b.String()
}

// archiveKind returns the kind of archive if data is one that is commonly mistaken for a bundle.
func archiveKind(data []byte) string {
	for _, a := range []struct{ magic, what string }{
		{"PK\x03\x04", "a zip archive"}, {"PK\x05\x06", "a zip archive"}, {"\x1f\x8b", "a gzip file"},
		{"BZh", "a bzip2 file"},
		{"\xfd7zXZ", "an xz file"}, {"\x28\xb5\x2f\xfd", "a zstd file"}, {"7z\xbc\xaf", "a 7z archive"},
	} {
		if bytes.HasPrefix(data, []byte(a.magic)) {
			return a.what
		}
	}
	if len(data) > 262 && string(data[257:262]) == "ustar" {
		return "a tar archive"
	}
	return ""
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func bundleError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...), "get the bundle again; bailey pack bundle DIR creates one")
}

// MakeBundle returns an unsigned bundle of all files below fsys, with the name and version of the manifest. The
// manifest must be valid. The result is checked with ReadBundle.
func MakeBundle(fsys fs.FS) ([]byte, error) {
	files, err := ReadFiles(fsys)
	if err != nil {
		return nil, err
	}
	return BundleFiles(files)
}

// BundleFiles is like [MakeBundle], for files that are sorted by path.
func BundleFiles(files []File) ([]byte, error) {
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == ManifestName })
	if i < 0 {
		return nil, bailey.Invalid.New("the directory has no "+ManifestName, "bailey pack scaffold NAME creates one")
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

// ReadFiles reads the files of a directory, sorted by path. It refuses everything except files and directories.
func ReadFiles(fsys fs.FS) (files []File, err error) {
	err = fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case checkBundlePath(path) != nil:
			return bundleInputError("%s is not a valid name of a file in a bundle", safeText(path))
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return bundleInputError("%s is not a regular file", path)
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
	data, err := io.ReadAll(io.LimitReader(in, maxBundleFile+1))
	if err != nil {
		return f, err
	}
	if f = NewFile(path, data); f.Size > maxBundleFile {
		return f, bundleInputError("%s is larger than %d bytes", path, maxBundleFile)
	}
	return f, nil
}

func bundleInputError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...),
		"keep the pack in its own directory: a bundle contains pack.yaml and its files, for example README.md and LICENSE")
}
