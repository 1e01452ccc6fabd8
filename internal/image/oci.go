package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/strictjson"
)

const (
	maxManifest = 4 << 20 // bytes of a JSON document of a container image
	maxLayers   = 128
	maxIndexes  = 4 // of indexes within indexes
)

// A descriptor names a blob (OCI image specification, descriptor.md).
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// A manifest is an index, which names manifests, or the manifest of one image.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// A container is an OCI archive: the files of an OCI image layout in a tar archive.
type container struct {
	blobs map[string]*io.SectionReader // by path
	index *io.SectionReader
	arch  string // that is wanted, or ""
}

var blobPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^blobs/sha256/([0-9a-f]{64})$`) })

// openContainer finds the files in an archive.
func openContainer(from *io.SectionReader) (*container, error) {
	c := &container{blobs: map[string]*io.SectionReader{}}
	archive := tar.NewReader(from)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || n > maxEntries {
			return nil, bailey.Invalid.Wrap(errors.Join(err), "the file is not a tar archive, or damaged", ociHint)
		}
		at, err := from.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch content := io.NewSectionReader(from, at, h.Size); {
		case h.Typeflag != tar.TypeReg:
		case name == "index.json":
			c.index = content
		case blobPattern().MatchString(name):
			c.blobs["sha256:"+blobPattern().FindStringSubmatch(name)[1]] = content
		}
	}
	if c.index == nil {
		return nil, bailey.Invalid.New("the archive has no index.json, so it is not an OCI archive", ociHint)
	}
	return c, nil
}

const ociHint = "make it with podman save --format oci-archive, skopeo copy docker://… oci-archive:FILE, or docker save of a new version"

// readJSON decodes a JSON document. Annotations and extensions are ignored, as the specification demands.
func readJSON(from *io.SectionReader, into any) error {
	if from.Size() > maxManifest {
		return fmt.Errorf("a document has %d bytes", from.Size())
	}
	text, err := io.ReadAll(io.NewSectionReader(from, 0, from.Size()))
	if err == nil {
		err = strictjson.Check(text, 32)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// openBlob returns a blob whose digest and size are those of the descriptor.
func (c *container) openBlob(d descriptor) (*io.SectionReader, error) {
	blob := c.blobs[d.Digest]
	if blob == nil {
		return nil, bailey.Invalid.Errorf(ociHint, "the archive lacks the blob %.80q", d.Digest)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(blob, 0, blob.Size())); err != nil {
		return nil, err
	}
	if blob.Size() != d.Size || "sha256:"+hex.EncodeToString(sum.Sum(nil)) != d.Digest {
		return nil, bailey.Invalid.Errorf(ociHint, "the blob %s has another content than its digest says", d.Digest)
	}
	return blob, nil
}

// findManifest returns the manifest of the only image for the wanted architecture, and that architecture.
func (c *container) findManifest() (m manifest, arch string, err error) {
	var index manifest
	if err := readJSON(c.index, &index); err != nil {
		return m, "", bailey.Invalid.Wrap(err, "index.json of the archive is refused", ociHint)
	}
	found, err := c.collectManifests(index, 0)
	if err != nil {
		return m, "", err
	}
	names := []string{}
	for _, f := range found {
		var config struct {
			Architecture string `json:"architecture"`
			OS           string `json:"os"`
		}
		blob, err := c.openBlob(f.Config)
		if err == nil {
			err = readJSON(blob, &config)
		}
		if err != nil {
			return m, "", bailey.Invalid.Wrap(err, "the configuration of the image in the archive is refused", ociHint)
		}
		if config.OS == "linux" && (config.Architecture == c.arch || c.arch == "") {
			names, m, arch = append(names, config.Architecture), f, config.Architecture
		}
	}
	if len(names) != 1 {
		return m, "", bailey.Invalid.Errorf("save one image, and name its architecture with --arch if it has several",
			"the archive has %d images for Linux and the architecture %q %q, want one", len(names), c.arch, names)
	}
	return m, arch, nil
}

// collectManifests returns the manifests of images in an index and in the indexes that it names.
func (c *container) collectManifests(index manifest, depth int) (found []manifest, err error) {
	if depth > maxIndexes || len(index.Manifests) > maxLayers {
		return nil, bailey.Invalid.New("the indexes in the archive are nested too deeply, or too long", ociHint)
	}
	for _, d := range index.Manifests {
		if d.Platform != nil && d.Platform.OS != "linux" { // for example attestations, whose system is "unknown"
			continue
		}
		blob, err := c.openBlob(d)
		var m manifest
		if err == nil {
			err = readJSON(blob, &m)
		}
		if err != nil {
			return nil, bailey.Invalid.Wrapf(err, ociHint, "the manifest %.80q is refused", d.Digest)
		}
		if len(m.Manifests) == 0 {
			found = append(found, m)
			continue
		}
		below, err := c.collectManifests(m, depth+1)
		if err != nil {
			return nil, err
		}
		if found = append(found, below...); len(found) > maxLayers {
			return nil, bailey.Invalid.New("the archive has too many images", ociHint)
		}
	}
	return found, nil
}

// unpackLayers applies the layers to a tree. Compressed ones are decompressed into files that temp makes.
func (c *container) unpackLayers(ctx context.Context, m manifest, t *tree, temp func() (*os.File, error)) error {
	if len(m.Layers) > maxLayers {
		return bailey.Invalid.Errorf("squash them", "the image has %d layers", len(m.Layers))
	}
	left := t.most + t.most/4 // bytes of all decompressed layers: the files, and their headers
	for n, d := range m.Layers {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		blob, err := c.openBlob(d)
		if err == nil {
			blob, err = decompressLayer(ctx, blob, &left, temp)
		}
		if err == nil {
			err = t.addArchive(blob, true)
		}
		if err != nil {
			return fmt.Errorf("layer %d: %w", n+1, err)
		}
	}
	return nil
}

// decompressLayer returns an archive without its compression. Its format is seen from its first bytes: the types in
// manifests
// are often wrong, and archive/tar refuses everything but archives.
func decompressLayer(ctx context.Context, from *io.SectionReader, left *int64,
	temp func() (*os.File, error)) (*io.SectionReader, error) {
	head := make([]byte, 4)
	if _, err := from.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, bailey.Invalid.New("it is compressed with zstd, which is not supported",
			"save the image with gzip or without compression")
	case !bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return from, nil
	}
	plain, err := gzip.NewReader(io.NewSectionReader(from, 0, from.Size()))
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "its compression is damaged", ociHint)
	}
	f, err := temp()
	if err != nil {
		return nil, err
	}
	size, err := io.Copy(f, io.LimitReader(contextReader{ctx, plain}, *left+1))
	if *left -= size; err == nil && *left < 0 {
		err = bailey.Invalid.New("the layers are larger than the disk without their compression",
			"give it more room with --disk")
	}
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = bailey.Invalid.Wrap(err, "its compression is damaged", ociHint)
	}
	return io.NewSectionReader(f, 0, size), err
}
