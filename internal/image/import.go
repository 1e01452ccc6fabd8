package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/initramfs"
	"bailey/internal/safefile"
)

// An Import describes an image that is made from a file of another program.
type Import struct {
	Name string // of the image
	File string // path
	// Fetch writes the disk, instead of File, and returns its format and where it is from.
	Fetch func(ctx context.Context, to *os.File) (format, from string, err error)
	// Format is "raw", "qcow2", "vmdk" or "oci". If it is empty, it follows from the name of the file: .img or .raw,
	// .qcow2,
	// .vmdk, .tar. It is never guessed from the content, which must agree.
	Format string
	// Kernel is the name of an image of the store whose kernel and initramfs are used, or a path, with a "/" in it, of
	// a kernel
	// that has the drivers of virtio devices and ext4 built in. If it is empty, the newest image of a distribution is
	// used.
	Kernel    string
	Arch      string // "amd64" or "arm64"
	DiskBytes int64  // of a container image: DefaultDisk if it is 0
	Init      string // path of the init in the disk: "/sbin/init" if it is empty
}

// Import imports an image. The file is copied first, so that what is checked is what is used.
func (m *Maker) Import(ctx context.Context, im Import) (Image, error) {
	if im.Fetch == nil {
		file, done, err := im.openFile()
		if err != nil {
			return Image{}, err
		}
		defer done()
		im.Fetch = func(ctx context.Context, to *os.File) (string, string, error) {
			m.reportProgress("copying %s", filepath.Base(im.File))
			_, err := io.Copy(to, contextReader{ctx, file})
			return im.Format, im.Format + " " + filepath.Base(im.File), err
		}
	}
	if err := im.completeImage(); err != nil {
		return Image{}, err
	}
	d, err := m.Store.Create(im.Name)
	if err != nil {
		return Image{}, err
	}
	defer d.Abandon()
	if err := m.borrowKernel(ctx, d, im); err != nil {
		return Image{}, err
	}
	own, err := os.OpenFile(d.Path("import"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	defer own.Close()
	i := Image{Arch: im.Arch}
	if im.Format, i.From, err = im.Fetch(ctx, own); err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	size, err := own.Seek(0, io.SeekEnd)
	if err != nil {
		return Image{}, err
	}
	if im.Format == formatOCI {
		return m.importContainer(ctx, d, im, i, io.NewSectionReader(own, 0, size))
	}
	return m.importDisk(ctx, d, im, i, own, size)
}

// openFile opens the file of an import and completes the format.
func (im *Import) openFile() (file *os.File, done func() error, err error) {
	byName := map[string]string{".img": formatRaw, ".raw": formatRaw, ".qcow2": formatQCOW2,
		".vmdk": formatVMDK, ".tar": formatOCI}
	if im.Format == "" {
		im.Format = byName[strings.ToLower(filepath.Ext(im.File))]
	}
	switch im.Format {
	case formatRaw, formatQCOW2, formatVMDK, formatOCI:
	default:
		return nil, nil, bailey.Invalid.Errorf("name it: --format raw, qcow2, vmdk or oci",
			"the format of %s does not follow from its name", filepath.Base(im.File))
	}
	file, err = os.OpenFile(im.File, os.O_RDONLY|safefile.NoWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, bailey.NotFound.Wrap(err, "the file cannot be imported", "name a file that exists")
	}
	if err != nil {
		return nil, nil, bailey.Unavailable.Wrap(err, "the file cannot be imported", "see its mode")
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, nil, bailey.Invalid.Wrap(errors.Join(err), im.File+" is not a regular file",
			"copy a disk into a file")
	}
	return file, file.Close, nil
}

// completeImage fills in the defaults.
func (im *Import) completeImage() error {
	if im.Init == "" {
		im.Init = "/sbin/init"
	}
	if !strings.HasPrefix(im.Init, "/") || strings.ContainsFunc(im.Init, func(r rune) bool {
		return r <= ' ' ||
			r > '~' || r == '"'
	}) {
		return bailey.Invalid.Errorf("use an absolute path", "the init of a machine cannot be %.80q", im.Init)
	}
	if im.Arch != "amd64" && im.Arch != "arm64" {
		return bailey.Invalid.Errorf("use amd64 or arm64", "an image cannot have the architecture %.80q", im.Arch)
	}
	return checkDisk(&im.DiskBytes)
}

func (m *Maker) importDisk(ctx context.Context, d *Draft, im Import, i Image, f *os.File, size int64) (Image, error) {
	disk, err := checkHeader(f, size, im.Format)
	if err != nil {
		return Image{}, err
	}
	raw := d.Path("disk.raw")
	m.reportProgress("reading the disk of %d MB", disk>>20)
	if err := convertDisk(ctx, im.Format, f.Name(), formatRaw, raw, disk); err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	opened, err := os.Open(raw)
	if err != nil {
		return Image{}, err
	}
	defer opened.Close()
	root, err := findRoot(opened, disk)
	if err != nil {
		return Image{}, err
	}
	device := "/dev/vda"
	if root.number > 0 {
		device += fmt.Sprint(root.number)
	}
	i.Kind, i.OS, i.DiskBytes, i.MemoryMB = Distribution, "imported", disk, systemMemory
	i.Append = "bailey.port=bailey bailey.root=" + device + " bailey.fstype=ext4 bailey.init=" + im.Init
	return m.commitDisk(ctx, d, raw, i)
}

func (m *Maker) importContainer(ctx context.Context, d *Draft, im Import, i Image,
	from *io.SectionReader) (Image, error) {
	c, err := openContainer(from)
	if err != nil {
		return Image{}, err
	}
	c.arch = im.Arch
	found, _, err := c.findManifest()
	if err != nil {
		return Image{}, err
	}
	t, parts := newTree(im.DiskBytes), []*os.File{}
	defer func() {
		for _, f := range parts {
			f.Close()
		}
	}()
	m.reportProgress("unpacking %d layers", len(found.Layers))
	err = c.unpackLayers(ctx, found, t, func() (*os.File, error) {
		f, err := os.OpenFile(d.Path(fmt.Sprintf("layer%d", len(parts))), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			parts = append(parts, f)
		}
		return f, err
	})
	if err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	i.DiskBytes = im.DiskBytes
	return m.finishDisk(ctx, d, t, time.Unix(0, 0), i) // equal archives give equal images
}

// borrowKernel takes the kernel for an imported disk. The one on the disk, if any, cannot be trusted to have what the
// agent needs.
func (m *Maker) borrowKernel(ctx context.Context, d *Draft, im Import) error {
	if strings.Contains(im.Kernel, "/") {
		agent, err := m.Agent(im.Arch)
		if err == nil {
			err = errors.Join(copyFile(ctx, d.Path("kernel"), im.Kernel), writeInitramfs(d.Path("initrd"),
				initramfs.Content{Agent: agent}))
		}
		return explainWrite(err, m.Store.dir)
	}
	if im.Kernel == "" {
		list, err := m.Store.List()
		if err != nil {
			return err
		}
		var newest time.Time
		for _, i := range list {
			if i.Kind == Distribution && i.Arch == im.Arch && i.Problem == "" && i.Built.After(newest) &&
				i.OS != "imported" {
				im.Kernel, newest = i.Name, i.Built
			}
		}
	}
	if im.Kernel == "" {
		return bailey.NotFound.Errorf("build an image first: bailey image build debian; or name a kernel with virtio and ext4 built in: --kernel ./vmlinuz",
			"there is no image for %s whose kernel the imported one can use", im.Arch)
	}
	u, err := m.Store.Use(im.Kernel)
	if err != nil {
		return err
	}
	defer u.Close()
	if u.Arch != im.Arch {
		return bailey.Invalid.Errorf("name another with --kernel", "the image %s is for %s, not for %s", u.Name,
			u.Arch, im.Arch)
	}
	err = errors.Join(copyFile(ctx, d.Path("kernel"), u.Kernel), copyFile(ctx, d.Path("initrd"), u.Initrd))
	return explainWrite(err, m.Store.dir)
}
