package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/initramfs"
)

// A MinimalConfig names the files of the host from which an image without disk is made.
type MinimalConfig struct {
	Name   string            // of the image
	Arch   string            // "amd64" or "arm64"
	Agent  string            // the program bailey-guest for that architecture
	Kernel string            // with the drivers of virtio devices built in
	Tools  string            // busybox, statically linked, for /bin; "" for none
	From   string            // origin, for people
	Record func(Image) error // called before the image is added; may be nil
}

// minimalMemory is the least memory of a minimal guest: its kernel, the initramfs and the agent.
const minimalMemory = 96

// AddMinimal adds an image of kind [Minimal]: the agent as pid 1, and the programs of busybox. Its machines have no
// disk, and
// boot in a second.
func (s *Store) AddMinimal(ctx context.Context, c MinimalConfig) (Image, error) {
	d, err := s.Create(c.Name)
	if err != nil {
		return Image{}, err
	}
	defer d.Abandon()
	content := initramfs.Content{Agent: c.Agent, Files: guestFiles(d, c.Tools)}
	err = writeText(d, "passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	err = errors.Join(err, writeText(d, "group", "root:x:0:\nnogroup:x:65534:\n"))
	if err == nil {
		err = errors.Join(copyFile(ctx, d.Path("kernel"), c.Kernel), writeInitramfs(d.Path("initrd"), content))
	}
	if err != nil {
		return Image{}, explainWrite(err, s.dir)
	}
	return d.Commit(Image{Kind: Minimal, OS: "minimal", Arch: c.Arch, Kernel: "kernel", Initrd: "initrd",
		Append: "bailey.port=bailey", MemoryMB: minimalMemory, From: c.From}, c.Record)
}

// guestFiles are the files of a minimal guest beside the agent.
func guestFiles(d *Draft, tools string) []initramfs.File {
	files := []initramfs.File{{Name: "etc", Mode: 0o755}, {Name: "root", Mode: 0o700}, {Name: "tmp", Mode: 0o1777},
		{Name: "run", Mode: 0o755}, {Name: "etc/passwd", From: d.Path("passwd"), Mode: 0o644},
		{Name: "etc/group", From: d.Path("group"), Mode: 0o644}}
	if tools == "" {
		return files
	}
	files = append(files, initramfs.File{Name: "bin", Mode: 0o755}, initramfs.File{Name: "bin/busybox",
		From: tools, Mode: 0o755},
		initramfs.File{Name: "usr", Mode: 0o755}, initramfs.File{Name: "usr/bin", Link: "../bin"},
		initramfs.File{Name: "sbin", Link: "bin"}, initramfs.File{Name: "usr/sbin", Link: "../bin"})
	for name := range strings.FieldsSeq(busyboxPrograms) {
		files = append(files, initramfs.File{Name: "bin/" + name, Link: "busybox"})
	}
	return files
}

// busyboxPrograms are programs of Debian's busybox-static.
const busyboxPrograms = `[ [[ ar arch ash awk basename bc bunzip2 bzcat bzip2 cal cat chgrp chmod chown chroot cksum clear cmp
cp cpio crond crontab cut date dc dd df diff dirname dmesg dnsdomainname dos2unix du echo egrep env expand expr factor
fallocate false fgrep find fold free ftpget getopt grep groups gunzip gzip head hexdump hostname httpd id ifconfig install
ip ipcalc kill killall last less link ln logger login ls lsmod lsof lzcat md5sum mkdir mkfifo mknod mktemp more mount mv nc
netstat nl nproc nsenter nslookup od paste patch pidof ping ping6 printf ps pwd readlink realpath renice reset rev rm rmdir
route sed seq setsid sh sha1sum sha256sum sha512sum shred shuf sleep sort split stat strings stty su sum sync sysctl tac
tail tar tee test timeout top touch tr traceroute true truncate tty umount uname unexpand uniq unix2dos unlink unshare
unxz unzip uptime usleep uudecode uuencode vi w watch wc wget which who whoami xargs xxd xz xzcat yes zcat`

func writeText(d *Draft, name, text string) error {
	return os.WriteFile(d.Path(name), []byte(text), 0o600)
}

func writeInitramfs(name string, c initramfs.Content) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(initramfs.Write(f, c), f.Close())
}

// copyFile copies a regular file that a person has named.
func copyFile(ctx context.Context, to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return bailey.NotFound.Wrap(err, "cannot open "+filepath.Base(from), "name a file that exists")
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, bailey.Invalid.New(from+" is not a regular file", "name a file"))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, contextReader{ctx, in})
	return errors.Join(err, out.Close())
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
