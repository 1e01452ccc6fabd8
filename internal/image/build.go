package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/ext4"
	"bailey/internal/initramfs"
)

const (
	// DefaultDisk is the size of the disk of a new image. Only the part that is used takes room.
	DefaultDisk  = 8 << 30
	minDisk      = 64 << 20
	maxDisk      = 2 << 40
	cacheDir     = ".cache"
	cacheTime    = 7 * 24 * time.Hour // after which the packages are fetched again, for their security updates
	systemMemory = 256                // MB that a distribution with systemd needs
	imageMemory  = 128                // MB for a container image
	endTime      = 20 * time.Second   // for a program to remove its files when it is interrupted
)

// A Maker makes images. Its fields are valid for all images that it makes.
type Maker struct {
	Store    *Store
	Agent    func(arch string) (string, error) // path of the program bailey-guest for an architecture
	Progress func(step string)                 // called before each step that takes long; may be nil
	Record   func(Image) error                 // called before an image is added; may be nil
}

func (m *Maker) reportProgress(format string, args ...any) {
	if m.Progress != nil {
		m.Progress(fmt.Sprintf(format, args...))
	}
}

// A Build describes an image of a distribution to be built.
type Build struct {
	Name      string // of the image
	Recipe    Recipe
	DiskBytes int64 // DefaultDisk if it is 0
	Fresh     bool  // fetch packages even if a root of the same recipe was made lately
	// Files are added to the root after the packages, by path.
	Files map[string]FileText
	Links map[string]string // symbolic links: path to target
	From  string            // origin, for people; "" for the recipe
}

// A FileText is a regular file.
type FileText struct {
	Text string
	Mode uint32 // permissions
	UID  uint32
	GID  uint32
}

// Build builds an image. The root that the programs of the distribution make is kept for a week, so a build that was
// interrupted later, or whose image was removed, does not fetch the packages again.
func (m *Maker) Build(ctx context.Context, b Build) (Image, error) {
	if err := b.Recipe.Check(); err != nil {
		return Image{}, err
	}
	if err := checkDisk(&b.DiskBytes); err != nil {
		return Image{}, err
	}
	d, err := m.Store.Create(b.Name)
	if err != nil {
		return Image{}, err
	}
	defer d.Abandon()
	root, done, err := m.cachedRoot(ctx, b.Recipe, b.Fresh)
	if err != nil {
		return Image{}, err
	}
	defer done()
	info, err := root.Stat()
	if err != nil {
		return Image{}, err
	}
	t, at := newTree(b.DiskBytes), info.ModTime()
	if err := t.addArchive(io.NewSectionReader(root, 0, info.Size()), false); err != nil {
		return Image{}, err
	}
	if err := t.addOwnFiles(b, at); err != nil {
		return Image{}, err
	}
	if err := m.takeKernel(ctx, d, t, b.Recipe.Arch); err != nil {
		return Image{}, err
	}
	from := b.From
	if from == "" {
		from = fmt.Sprintf("%s %s with %d packages of its own", b.Recipe.OS, b.Recipe.Release, len(b.Recipe.Packages))
	}
	return m.finishDisk(ctx, d, t, at, Image{Arch: b.Recipe.Arch, DiskBytes: b.DiskBytes, From: from})
}

// maskedUnits are units of systemd that only cost time in a machine that has no console and lives for hours.
const maskedUnits = `getty@tty1.service getty-static.service getty.target serial-getty@hvc0.service apt-daily.timer
apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-repart.service
systemd-pstore.service systemd-binfmt.service systemd-update-utmp.service systemd-update-utmp-runlevel.service
systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-pcrmachine.service systemd-firstboot.service
systemd-networkd-wait-online.service dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount
systemd-tmpfiles-clean.timer systemd-rfkill.service systemd-hwdb-update.service`

// maskUnits masks units in a root with systemd.
func (t *tree) maskUnits(at time.Time) error {
	if t.findNode("/lib/systemd/systemd") == nil && t.findNode("/usr/lib/systemd/systemd") == nil {
		return nil
	}
	dir, err := t.walkTo([]string{"etc", "systemd", "system"}, true)
	if err != nil {
		return err
	}
	for unit := range strings.FieldsSeq(maskedUnits) {
		dir.Children[unit] = &ext4.Node{Mode: ext4.Symlink | 0o777, Target: "/dev/null", MTime: at}
	}
	return nil
}

// addOwnFiles adds the files and links of a build.
func (t *tree) addOwnFiles(b Build, at time.Time) error {
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		f := b.Files[name]
		n := &ext4.Node{Mode: ext4.Regular | f.Mode&0o7777, UID: f.UID, GID: f.GID, MTime: at, Size: int64(len(f.Text)),
			Open: func() io.Reader { return strings.NewReader(f.Text) }}
		if err := t.putNode(name, n); err != nil {
			return bailey.Invalid.Wrapf(err, "leave it out", "the file %.200q cannot be added", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Links)) {
		if err := t.putNode(name, &ext4.Node{Mode: ext4.Symlink | 0o777, Target: b.Links[name],
			MTime: at}); err != nil {
			return bailey.Invalid.Wrapf(err, "leave it out", "the link %.200q cannot be added", name)
		}
	}
	return t.maskUnits(at)
}

func checkDisk(size *int64) error {
	if *size == 0 {
		*size = DefaultDisk
	}
	if *size < minDisk || *size > maxDisk {
		return bailey.Invalid.Errorf("use 64M to 2T", "an image cannot have a disk of %d bytes", *size)
	}
	*size = (*size + 1<<20 - 1) >> 20 << 20
	return nil
}

// finishDisk writes the tree into the disk of the image and adds the image to the store.
func (m *Maker) finishDisk(ctx context.Context, d *Draft, t *tree, at time.Time, i Image) (Image, error) {
	m.reportProgress("writing the disk: %d files, %d MB", t.entries, t.bytes>>20)
	raw := d.Path("disk.raw")
	f, err := os.OpenFile(raw, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	err = errors.Join(ext4.Write(contextWriter{ctx, f}, t.root, ext4.Config{Size: i.DiskBytes, Label: "root",
		Time: at}), f.Close())
	switch {
	case errors.Is(err, ext4.ErrFull):
		return Image{}, bailey.Invalid.Wrapf(err, "give it more with --disk", "the disk of %d MB is too small",
			i.DiskBytes>>20)
	case err != nil:
		return Image{}, explainWrite(err, m.Store.dir)
	}
	release := osRelease(t.readText("/etc/os-release", 64<<10))
	i.Kind, i.OS, i.Release = Distribution, release["ID"], release["VERSION_ID"]
	i.Append, i.MemoryMB = "bailey.port=bailey bailey.root=/dev/vda bailey.fstype=ext4", imageMemory
	if n := t.findNode("/sbin/init"); n != nil && n.Mode&0o111 != 0 { // otherwise the agent stays pid 1
		i.Append, i.MemoryMB = i.Append+" bailey.init=/sbin/init", systemMemory
	}
	return m.commitDisk(ctx, d, raw, i)
}

// commitDisk compacts a raw disk and adds the image to the store.
func (m *Maker) commitDisk(ctx context.Context, d *Draft, raw string, i Image) (Image, error) {
	m.reportProgress("compacting the disk")
	if err := convertDisk(ctx, "raw", raw, "qcow2", d.Path("disk.qcow2"), i.DiskBytes); err != nil {
		return Image{}, explainWrite(err, m.Store.dir)
	}
	if err := os.Remove(raw); err != nil {
		return Image{}, err
	}
	m.reportProgress("computing digests")
	i.Kernel, i.Initrd, i.Layers = "kernel", "initrd", []Layer{{Path: "disk.qcow2", Format: "qcow2"}}
	return d.Commit(i, m.Record)
}

// A contextWriter ends with its context.
type contextWriter struct {
	ctx context.Context
	io.WriterAt
}

func (w contextWriter) WriteAt(p []byte, at int64) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.WriterAt.WriteAt(p, at)
}

// cachedRoot returns the root that a recipe describes, as a tar archive, and keeps it from being removed until done.
func (m *Maker) cachedRoot(ctx context.Context, r Recipe, fresh bool) (f *os.File, done func(), err error) {
	dir := filepath.Join(m.Store.dir, cacheDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, explainWrite(err, dir)
	}
	name := filepath.Join(dir, r.Digest())
	lock, err := lockCreated(name+".lock", true)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	pruneCache(dir)
	info, err := os.Lstat(name + ".tar")
	switch {
	case err == nil && !fresh && time.Since(info.ModTime()) < cacheTime:
		m.reportProgress("using the root that was made %s", info.ModTime().Format(time.DateTime))
	case err == nil || errors.Is(err, fs.ErrNotExist):
		if err := m.makeRoot(ctx, r, name); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, err
	}
	if f, err = os.Open(name + ".tar"); err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close(); lock.Close() }, nil
}

// pruneCache removes what is too old, and not in use.
func pruneCache(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		name, _, _ := strings.Cut(e.Name(), ".")
		if err != nil || time.Since(info.ModTime()) < cacheTime || strings.HasSuffix(e.Name(), ".lock") {
			continue
		}
		if lock, err := lockCreated(filepath.Join(dir, name+".lock"), false); err == nil {
			os.RemoveAll(filepath.Join(dir, e.Name()))
			lock.Close()
		}
	}
}

func lockCreated(name string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainWrite(err, filepath.Dir(name))
	}
	f.Close()
	return lockFile(name, true, wait)
}

// makeRoot runs the commands of a recipe and puts their archive into the cache.
func (m *Maker) makeRoot(ctx context.Context, r Recipe, name string) error {
	out := name + ".new"
	defer os.RemoveAll(out + ".root")
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	defer os.Remove(out)
	for _, argv := range r.Commands(out) {
		m.reportProgress("%s: fetching and unpacking packages, which takes minutes", argv[0])
		if err := runTool(ctx, argv, m.Progress); err != nil {
			return err
		}
	}
	if err := os.Chmod(out, 0o600); err != nil {
		return err
	}
	return os.Rename(out, name+".tar")
}

// installHints say how to get the programs that make images.
func installHints() map[string]string {
	return map[string]string{"mmdebstrap": "install it: apt install mmdebstrap",
		"qemu-img": "install it: apt install qemu-utils",
		"apk":      "install apk-tools, version 3, from Alpine", "tar": "install tar"}
}

// runTool runs a program to its end. If the context ends, the program has time to remove its files. Its messages are
// shown as
// progress, and the last of them explain a failure.
func runTool(ctx context.Context, argv []string, progress func(string)) error {
	if err := findTool(argv[0]); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endTime
	log := &lastLines{progress: progress}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return bailey.ToolFailed.Wrapf(errors.Join(err, errors.New(log.lastText())), "see its messages",
			"%s failed", argv[0])
	}
	return nil
}

// lastLines keeps the end of what a program writes.
type lastLines struct {
	progress func(string)
	part     []byte // a line without its end
	lines    []string
}

const keptLines, maxLine = 12, 400

func (l *lastLines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		at := bytes.IndexAny(l.part, "\r\n")
		if at < 0 && len(l.part) < maxLine {
			return len(p), nil
		}
		line := l.part[:max(0, at)]
		if at < 0 {
			line, at = l.part, len(l.part)-1
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			l.lines = append(l.lines, text[:min(len(text), maxLine)])
			l.lines = l.lines[max(0, len(l.lines)-keptLines):]
			if l.progress != nil {
				l.progress(text)
			}
		}
		l.part = l.part[at+1:]
	}
}

func (l *lastLines) lastText() string { return strings.Join(append(l.lines, string(l.part)), "\n") }

// bootModules are the modules of a kernel that a guest needs before its root is mounted, without those on which they
// depend.
// Each may be built in; a kernel without crc32c_generic has it under another name.
const bootModules = "virtio_mmio virtio_pci virtio_blk virtio_console virtio_net virtio-rng crc32c_generic ext4"

// takeKernel takes the newest kernel of a tree, and makes an initramfs with the agent and the modules that it needs.
func (m *Maker) takeKernel(ctx context.Context, d *Draft, t *tree, arch string) error {
	boot, err := t.walkTo([]string{"boot"}, false)
	if err != nil {
		return bailey.Internal.Wrap(err, "the root has no kernel", "")
	}
	names := []string{}
	for name, n := range boot.Children {
		if strings.HasPrefix(name, "vmlinuz-") && n.Mode&ext4.TypeMask == ext4.Regular {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return bailey.Invalid.New("the root has no kernel in /boot", "add the package of one")
	}
	slices.SortFunc(names, compareVersions)
	kernel := names[len(names)-1]
	if err := writeNode(ctx, d.Path("kernel"), boot.Children[kernel]); err != nil {
		return explainWrite(err, m.Store.dir)
	}
	dir := "/usr/lib/modules/" + strings.TrimPrefix(kernel, "vmlinuz-")
	if t.findNode(dir) == nil {
		dir = "/lib/modules/" + strings.TrimPrefix(kernel, "vmlinuz-")
	}
	agent, err := m.Agent(arch)
	if err != nil {
		return err
	}
	content := initramfs.Content{Agent: agent}
	for _, module := range orderModules(t.readText(dir+"/modules.dep", 16<<20), strings.Fields(bootModules)) {
		file := d.Path(path.Base(module))
		n := t.findNode(dir + "/" + module)
		if n == nil || n.Mode&ext4.TypeMask != ext4.Regular {
			return bailey.Invalid.Errorf("build it again", "the root lacks the module %.200s of its kernel", module)
		}
		if err := writeNode(ctx, file, n); err != nil {
			return explainWrite(err, m.Store.dir)
		}
		content.Modules = append(content.Modules, strings.TrimSuffix(file, ".gz"))
	}
	return explainWrite(writeInitramfs(d.Path("initrd"), content), m.Store.dir)
}

// compareVersions orders names with numbers in them, such as those of kernels.
func compareVersions(a, b string) int {
	number := func(s string) (digits string, rest string) {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		return s[:n], s[n:]
	}
	for a != "" && b != "" {
		x, y := "", ""
		x, a = number(a)
		y, b = number(b)
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		switch {
		case len(x) != len(y):
			return len(x) - len(y)
		case x != y:
			return strings.Compare(x, y)
		case a != "" && b != "" && a[0] != b[0]:
			return int(a[0]) - int(b[0])
		}
		a, b = a[min(1, len(a)):], b[min(1, len(b)):]
	}
	return len(a) - len(b)
}

// orderModules returns the files of modules, each after those on which it depends, as modules.dep says. A module that
// it does
// not know is built in, or has another name in this kernel.
func orderModules(text string, wanted []string) (files []string) {
	depends := map[string][]string{}
	byName := map[string]string{}
	for line := range strings.Lines(text) {
		file, below, ok := strings.Cut(line, ":")
		if !ok || path.Clean("/"+file) != "/"+file || len(depends) > 100_000 {
			continue
		}
		depends[file] = strings.Fields(below)
		name, _, _ := strings.Cut(path.Base(file), ".ko")
		byName[strings.ReplaceAll(name, "-", "_")] = file
	}
	seen := map[string]bool{}
	var add func(file string)
	add = func(file string) {
		if below, ok := depends[file]; ok && !seen[file] && len(files) < 200 {
			seen[file] = true
			for _, b := range slices.Backward(below) { // the lowest is the last
				add(b)
			}
			files = append(files, file)
		}
	}
	for _, name := range wanted {
		add(byName[strings.ReplaceAll(name, "-", "_")])
	}
	return files
}

// writeNode writes a file of a tree. If it is a module compressed with gzip, it is decompressed: some kernels cannot
// do it.
func writeNode(ctx context.Context, name string, n *ext4.Node) error {
	var from io.Reader = contextReader{ctx, n.Open()}
	if strings.HasSuffix(name, ".ko.gz") {
		plain, err := gzip.NewReader(from)
		if err != nil {
			return err
		}
		name, from = strings.TrimSuffix(name, ".gz"), io.LimitReader(plain, 64<<20)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
