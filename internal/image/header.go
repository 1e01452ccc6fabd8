package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"bailey"
)

// The formats of disks that can be imported.
const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"
	formatVMDK  = "vmdk"
	formatOCI   = "oci"
)

const sector = 512

// checkHeader returns the size of the disk in a file, which must have the stated format and be complete: an image that
// is
// based on another file could name any file of this host, for example /etc/shadow. It is refused before another program
// reads it.
func checkHeader(f io.ReaderAt, size int64, format string) (disk int64, err error) {
	head := make([]byte, sector)
	if n, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) || n < sector {
		return 0, bailey.Invalid.New("the file is too short for a disk", "name the image of a disk")
	}
	if seen := seenFormat(head); seen != format && (seen != "" || format != formatRaw) {
		if seen == "" {
			seen = formatRaw
		}
		return 0, bailey.Invalid.Errorf("if the file is what you expect, name its format: --format "+seen,
			"the file does not have the format %s: it begins like %s", format, seen)
	}
	switch format {
	case formatQCOW2:
		disk, err = checkQCOW2(head)
	case formatVMDK:
		disk, err = checkVMDK(f, head)
	default:
		disk = (size + sector - 1) / sector * sector
	}
	if err != nil {
		return 0, bailey.Invalid.Wrap(err, "the image is refused",
			"convert it where it comes from: qemu-img convert -O qcow2 FROM TO")
	}
	if disk <= 0 || disk > maxDisk {
		return 0, bailey.Invalid.Errorf("import a smaller one",
			"the image has a disk of %d bytes, at most 2 TiB are allowed", disk)
	}
	return disk, nil
}

// seenFormat returns the format of which the first bytes are typical, or "".
func seenFormat(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return formatQCOW2
	case bytes.HasPrefix(head, []byte("KDMV")), bytes.HasPrefix(head, []byte("COWD")), bytes.Contains(head,
		[]byte("# Disk DescriptorFile")):
		return formatVMDK
	case bytes.HasPrefix(head, []byte("conectix")):
		return "vpc"
	case bytes.HasPrefix(head, []byte("vhdxfile")):
		return "vhdx"
	case string(head[257:262]) == "ustar":
		return formatOCI
	}
	return ""
}

// checkQCOW2 reads the header of a qcow2 image (docs/interop/qcow2.txt of QEMU).
func checkQCOW2(head []byte) (disk int64, err error) {
	const dirty, corrupt, external = 1, 2, 4
	version := binary.BigEndian.Uint32(head[4:])
	features := uint64(0)
	if version >= 3 {
		features = binary.BigEndian.Uint64(head[72:])
	}
	switch {
	case version != 2 && version != 3:
		return 0, fmt.Errorf("its version is %d, not 2 or 3", version)
	case binary.BigEndian.Uint64(head[8:]) != 0 || binary.BigEndian.Uint32(head[16:]) != 0:
		return 0, errors.New("it is based on another file")
	case features&external != 0:
		return 0, errors.New("its data is in another file")
	case features&(dirty|corrupt) != 0:
		return 0, errors.New("it is marked as damaged, or was not closed: qemu-img check -r all repairs it")
	case binary.BigEndian.Uint32(head[32:]) != 0:
		return 0, errors.New("it is encrypted")
	}
	bits := binary.BigEndian.Uint32(head[20:])
	if bits < 9 || bits > 21 {
		return 0, fmt.Errorf("its clusters have 2^%d bytes", bits)
	}
	return int64(min(binary.BigEndian.Uint64(head[24:]), 1<<62)), nil
}

var vmdkLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\s*([A-Za-z]+)\s*=\s*"?([^"\r\n]*)"?\s*$`) })

// checkVMDK reads the header of a sparse VMDK image ("Virtual Disk Format 5.0" of VMware) and the description in it.
// Images whose
// description is a file of its own name other files, so they are refused.
func checkVMDK(f io.ReaderAt, head []byte) (disk int64, err error) {
	const most = 64 << 10
	if !bytes.HasPrefix(head, []byte("KDMV")) {
		return 0, errors.New("its data is in other files, or it is of an old version")
	}
	capacity, at, length := binary.LittleEndian.Uint64(head[12:]), binary.LittleEndian.Uint64(head[28:]), binary.LittleEndian.Uint64(head[36:])
	if capacity == 0 || capacity > maxDisk/sector {
		return 0, fmt.Errorf("it has %d sectors", capacity)
	}
	if at == 0 || at > maxDisk/sector || length == 0 || length > most/sector {
		return 0, fmt.Errorf("its description has %d sectors at sector %d", length, at)
	}
	text := make([]byte, length*sector)
	if _, err := f.ReadAt(text, int64(at)*sector); err != nil {
		return 0, fmt.Errorf("its description cannot be read: %w", err)
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	values := map[string]string{}
	for _, m := range vmdkLine().FindAllSubmatch(text, -1) {
		name := strings.ToLower(string(m[1]))
		if _, twice := values[name]; twice {
			return 0, fmt.Errorf("its description has %q twice", name)
		}
		values[name] = string(m[2])
	}
	switch {
	case strings.Contains(strings.ToLower(string(text)),
		"parentfilenamehint"), !strings.EqualFold(values["parentcid"], "ffffffff"):
		return 0, errors.New("it is based on another file")
	case values["createtype"] != "monolithicSparse" && values["createtype"] != "streamOptimized":
		return 0, fmt.Errorf("its type is %.80q, not monolithicSparse or streamOptimized", values["createtype"])
	}
	extents := 0
	for line := range strings.Lines(string(text)) {
		if word := strings.Fields(line); len(word) > 2 && (word[0] == "RW" || word[0] == "RDONLY" ||
			word[0] == "NOACCESS") {
			if extents++; word[2] != "SPARSE" || word[1] != strconv.FormatUint(capacity, 10) || extents > 1 {
				return 0, errors.New("it has other extents than its own")
			}
		}
	}
	return int64(capacity) * sector, nil
}

// A partition is where a file system is on a disk.
type partition struct {
	number      int // as in /dev/vda1; 0 for the whole disk
	start, size int64
	root        bool // its type says that it is the root
}

// findRoot returns the partition with the root of a disk: the one whose type is that of a root (Discoverable Partitions
// Specification), or else the largest. It must have ext4, which is what the initramfs can mount.
func findRoot(disk io.ReaderAt, size int64) (partition, error) {
	if hasExt4(disk, 0) {
		return partition{size: size}, nil
	}
	list, err := listPartitions(disk, size)
	if err != nil {
		return partition{}, bailey.Invalid.Wrap(err, "the root of the disk is not found", importHint)
	}
	var best partition
	for _, p := range list {
		if hasExt4(disk, p.start) && (p.root && !best.root || p.root == best.root && p.size > best.size) {
			best = p
		}
	}
	if best.size == 0 {
		return partition{}, bailey.Invalid.Errorf(importHint,
			"none of the %d partitions has an ext4 file system", len(list))
	}
	return best, nil
}

const importHint = "import a disk whose root is ext4, on a partition or on the whole disk, without LVM and encryption"

func hasExt4(disk io.ReaderAt, start int64) bool {
	head := make([]byte, 128)
	_, err := disk.ReadAt(head, start+1024)
	return err == nil && binary.LittleEndian.Uint16(head[56:]) == 0xef53
}

// rootTypes are the types of partitions with the root, for amd64 and arm64, as GPT stores them.
func rootTypes() []string {
	return []string{"\xe3\xbc\x68\x4f\xcd\xe8\xb1\x4d\x96\xe7\xfb\xca\xf9\x84\xb7\x09",
		"\x45\xb0\x21\xb9\xf0\x1d\xc3\x41\xaf\x44\x4c\x6f\x28\x0d\x3f\xae"}
}

// listPartitions reads a partition table: GPT (UEFI specification, section 5.3) or MBR, whose extended partitions are
// left out.
func listPartitions(disk io.ReaderAt, size int64) (list []partition, err error) {
	head := make([]byte, 2*sector)
	if _, err := disk.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if head[510] != 0x55 || head[511] != 0xaa {
		return nil, errors.New("there is no partition table")
	}
	add := func(p partition) {
		if p.start > 0 && p.size > 0 && p.start < size && p.size <= size-p.start {
			list = append(list, p)
		}
	}
	gpt := head[sector:]
	if !bytes.HasPrefix(gpt, []byte("EFI PART")) {
		for i := range 4 {
			e := head[446+16*i:]
			if kind := e[4]; kind == 0x83 {
				add(partition{number: i + 1, start: sector * int64(binary.LittleEndian.Uint32(e[8:])),
					size: sector * int64(binary.LittleEndian.Uint32(e[12:]))})
			}
		}
		return list, nil
	}
	at, count, each := binary.LittleEndian.Uint64(gpt[72:]), binary.LittleEndian.Uint32(gpt[80:]), binary.LittleEndian.Uint32(gpt[84:])
	if at > uint64(size)/sector || count > 256 || each < 128 || each > 4096 {
		return nil, fmt.Errorf("the partition table has %d entries of %d bytes", count, each)
	}
	entries := make([]byte, count*each)
	if _, err := disk.ReadAt(entries, int64(at)*sector); err != nil {
		return nil, fmt.Errorf("the partition table is cut off: %w", err)
	}
	for i := range int(count) {
		e := entries[i*int(each):]
		first, last := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		if first > last || last >= uint64(size)/sector {
			continue
		}
		p := partition{number: i + 1, start: int64(first) * sector, size: int64(last-first+1) * sector}
		for _, kind := range rootTypes() {
			p.root = p.root || string(e[:16]) == kind
		}
		add(p)
	}
	return list, nil
}
