// Package image keeps the images from which machines of sandboxes start, and makes them: from packages of a
// distribution,
// from disks and containers of other programs, and from the facts of a source host.
//
// # Files
//
// A store is a directory of mode 0700 with one directory for each image. The name of the directory is that of the
// image.
// It contains image.json, the kernel, the initramfs and the layers of the disk. An image is made in a directory
// ".new-RANDOM", in which image.json is written last, and which is then renamed. To remove an image, its directory is
// renamed to ".old-RANDOM" first. [Open] removes both kinds if no process has them locked, so a process that was killed
// leaves nothing.
//
// # Locks
//
// Locks are those of flock(2). The file ".lock" of the store is locked while directories get or lose a name. The
// directory
// of an image is locked shared by each process that uses it ([Store.Use]), and exclusively by the one that removes it,
// so
// an image in use is never removed.
//
// # Digests
//
// [Image.Digest] covers what a machine starts from: [Image.Files] describes how. [Store.Get] compares each file with
// its
// digest. A file is not read again if its device, inode, size, time of modification (mtime) and time of change (ctime)
// are
// those at which its digest was computed. Every write to a file, and every change of mtime by a program, sets ctime to
// the
// present, and a program cannot set ctime otherwise, so a changed file is noticed. Clocks of file systems have steps,
// so
// a digest is computed only after the file has rested for longer than one step.
//
// # Starting
//
// Every guest has bailey-guest as its agent, on the virtio-serial port named "bailey". It is /init of the initramfs.
// For
// an image of kind [Minimal] it stays pid 1. For others the kernel's command line names the root and the init of the
// distribution: the agent mounts the root, starts itself as a service and becomes that init (package guestagent).
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"bailey"
)

// The kinds of images.
const (
	Minimal      = "minimal"      // a kernel and an initramfs, without a disk
	Distribution = "distribution" // a disk with an init of its own
)

// An Image is what machines start from. Its files are never written.
type Image struct {
	Name    string `json:"name"`
	Digest  string `json:"digest"` // SHA-256 of what a machine starts from, in hexadecimal: see Files
	Kind    string `json:"kind"`   // Minimal or Distribution
	OS      string `json:"os"`     // as ID in os-release(5), for example "debian"
	Release string `json:"release,omitempty"`
	Arch    string `json:"arch"`   // "amd64" or "arm64"
	Kernel  string `json:"kernel"` // path
	Initrd  string `json:"initrd"` // path
	Append  string `json:"append"` // the kernel's command line
	// Layers are the images of the disk, the lowest first. They are empty if a machine has no disk.
	Layers    []Layer   `json:"layers"`
	DiskBytes int64     `json:"diskBytes"` // size of the disk that a machine sees
	MemoryMB  int       `json:"memoryMB"`  // least memory with which a machine starts
	Size      int64     `json:"size"`      // bytes of all files
	Built     time.Time `json:"built"`
	From      string    `json:"from"`              // origin, for people: a command line, a file, a host
	Problem   string    `json:"problem,omitempty"` // only in List: why the image cannot be used
}

// A Layer is an image of a disk that is only read. Its fields are those of a layer of package vm.
type Layer struct {
	Path   string `json:"path"`
	Format string `json:"format"` // "raw" or "qcow2"
	SHA256 string `json:"sha256"` // of the file, in hexadecimal
}

// maxName is the most bytes of a name. Names of directories and of sandboxes contain it.
const maxName = 64

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) })

// CheckName returns an error of kind Invalid unless the name can be that of an image.
func CheckName(name string) error {
	if !namePattern().MatchString(name) {
		return bailey.Invalid.Errorf("use letters a-z, digits, '.', '_' and '-', at most "+strconv.Itoa(maxName)+
			", with a letter or digit first", "an image cannot have the name %.80q", name)
	}
	return nil
}

// Files lists what the digest of an image covers, one line each: the architecture, the kernel's command line, and the
// SHA-256 of the kernel, of the initramfs, and of each layer with its format. sums are the digests of files by path.
func (i Image) Files(sums map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bailey image 1\narch %s\nappend %q\nkernel %s\ninitrd %s\n", i.Arch, i.Append,
		sums[i.Kernel], sums[i.Initrd])
	for _, l := range i.Layers {
		fmt.Fprintf(&b, "layer %s %s\n", l.Format, sums[l.Path])
	}
	return b.String()
}

func (i Image) digestFiles(sums map[string]string) string {
	sum := sha256.Sum256([]byte(i.Files(sums)))
	return hex.EncodeToString(sum[:])
}

// filePaths returns the paths of all files.
func (i Image) filePaths() []string {
	paths := []string{i.Kernel, i.Initrd}
	for _, l := range i.Layers {
		paths = append(paths, l.Path)
	}
	return paths
}

// checkRecord returns an error unless a stored image describes a machine and names only files of its own directory.
func (i Image) checkRecord() error {
	for _, name := range i.filePaths() {
		if name != filepath.Base(name) || !namePattern().MatchString(name) || name == recordFile {
			return fmt.Errorf("%.80q cannot be the name of a file of an image", name)
		}
	}
	for _, l := range i.Layers {
		if l.Format != "raw" && l.Format != "qcow2" {
			return fmt.Errorf("a layer has the format %.80q", l.Format)
		}
	}
	switch {
	case i.Kind != Minimal && i.Kind != Distribution:
		return fmt.Errorf("the kind is %.80q", i.Kind)
	case i.Arch != "amd64" && i.Arch != "arm64":
		return fmt.Errorf("the architecture is %.80q", i.Arch)
	case (i.Kind == Distribution) != (len(i.Layers) > 0):
		return fmt.Errorf("an image of kind %s has %d layers", i.Kind, len(i.Layers))
	case i.DiskBytes < 0 || i.MemoryMB < 0:
		return fmt.Errorf("it has a disk of %d bytes and %d MB of memory", i.DiskBytes, i.MemoryMB)
	}
	return nil
}
