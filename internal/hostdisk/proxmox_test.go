package hostdisk

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/remote"
)

// makeArchive returns a VMA archive of disks in the order of their device numbers, from 1. The clusters of the disks
// alternate, as vzdump writes them, and blocks that are zero are left out.
func makeArchive(disks map[string][]byte, order ...string) []byte {
	head, names := make([]byte, vmaHeaderSize), []byte{0}
	copy(head, "VMA\x00\x00\x00\x00\x01uuid-of-16-bytes")
	for i, name := range order {
		entry := head[4096+32*(i+1):]
		binary.BigEndian.PutUint32(entry, uint32(len(names)))
		binary.BigEndian.PutUint64(entry[8:], uint64(len(disks[name])))
		names = binary.LittleEndian.AppendUint16(names, uint16(len(name)+1))
		names = append(names, name+"\x00"...)
	}
	names = append(names, make([]byte, 512-len(names)%512)...)
	binary.BigEndian.PutUint32(head[48:], vmaHeaderSize)
	binary.BigEndian.PutUint32(head[52:], uint32(len(names)))
	binary.BigEndian.PutUint32(head[56:], uint32(vmaHeaderSize+len(names)))
	archive := sumHead(append(head, names...), 32)
	extent, data, clusters, blocks := make([]byte, vmaExtentSize), []byte{}, 0, 0
	flush := func() {
		copy(extent, "VMAE")
		copy(extent[8:], "uuid-of-16-bytes")
		binary.BigEndian.PutUint16(extent[6:], uint16(blocks))
		archive = append(append(archive, sumHead(extent, 24)...), data...)
		extent, data, clusters, blocks = make([]byte, vmaExtentSize), nil, 0, 0
	}
	for number, more := 0, true; more; number++ {
		more = false
		for i, name := range order {
			at := number * vmaCluster
			if at >= len(disks[name]) {
				continue
			}
			more = true
			cluster := make([]byte, vmaCluster)
			copy(cluster, disks[name][at:])
			mask := 0
			for b := range 16 {
				if block := cluster[b*vmaBlock : (b+1)*vmaBlock]; !bytes.Equal(block, make([]byte, vmaBlock)) {
					mask |= 1 << b
					data = append(data, block...)
					blocks++
				}
			}
			binary.BigEndian.PutUint64(extent[40+8*clusters:], uint64(mask)<<48|uint64(i+1)<<32|uint64(number))
			if clusters++; clusters == vmaClusters {
				flush()
			}
		}
	}
	flush()
	return archive
}

// sumHead sets the checksum of a header.
func sumHead(head []byte, at int) []byte {
	copy(head[at:], make([]byte, md5.Size))
	sum := md5.Sum(head)
	copy(head[at:], sum[:])
	return head
}

// randomDisk returns a disk with random blocks and blocks of zeros.
func randomDisk(size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := 0; at < size; at += 3 * vmaBlock {
		random.Read(data[at:min(at+vmaBlock, size)])
	}
	return data
}

// A proxmoxHost answers vzdump with an archive.
type proxmoxHost struct {
	archive []byte
	fails   bool
	lines   []string
}

func (p *proxmoxHost) Run(_ context.Context, c remote.Command) (remote.Result, error) {
	p.lines = append(p.lines, c.Line)
	if _, err := io.Copy(c.Stdout, bytes.NewReader(p.archive)); err != nil {
		return remote.Result{Code: -1}, err
	}
	if p.fails {
		io.WriteString(c.Stderr, "Configuration file does not exist\nbailey: the command failed\n")
	}
	return remote.Result{}, nil
}

func copyProxmox(t testing.TB, h Host, d Proxmox) ([]byte, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := d.Copy(t.Context(), h, f, func(string, ...any) {}); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data, nil
}

// TestProxmox copies disks from an archive with several.
func TestProxmox(t *testing.T) {
	disks := map[string][]byte{"drive-scsi0": randomDisk(9<<20 + 512), "drive-efidisk0": randomDisk(vmaBlock), "drive-virtio1": make([]byte, 5<<20)}
	h := &proxmoxHost{archive: makeArchive(disks, "drive-efidisk0", "drive-scsi0", "drive-virtio1")}
	for _, name := range []string{"scsi0", "virtio1"} {
		data, err := copyProxmox(t, h, Proxmox{"101", name})
		if err != nil || !bytes.Equal(data, disks["drive-"+name]) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	if want := "{ vzdump '101' --stdout 1 --mode snapshot --compress 0 --quiet 1 || "; !strings.HasPrefix(h.lines[0], want) {
		t.Errorf("the host ran %q", h.lines[0])
	}
	if _, err := copyProxmox(t, h, Proxmox{"101", ""}); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "several disks") {
		t.Errorf("of several disks one was chosen: %v", err)
	}
	if _, err := copyProxmox(t, h, Proxmox{"101", "efidisk0"}); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("the disk of the firmware: %v", err)
	}
	one := &proxmoxHost{archive: makeArchive(disks, "drive-efidisk0", "drive-scsi0")}
	if data, err := copyProxmox(t, one, Proxmox{"101", ""}); err != nil || !bytes.Equal(data, disks["drive-scsi0"]) {
		t.Errorf("the only disk: %d bytes, %v", len(data), err)
	}
	for _, id := range []string{"", "99", "abc", "101; reboot", "-1", "1e3"} {
		if _, err := copyProxmox(t, nil, Proxmox{id, ""}); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%q is a number: %v", id, err)
		}
	}
	if _, err := copyProxmox(t, &proxmoxHost{fails: true}, Proxmox{"101", ""}); err == nil || !strings.Contains(err.Error(), "Configuration file") {
		t.Errorf("a command that failed: %v", err)
	}
	if _, err := copyProxmox(t, &proxmoxHost{archive: one.archive, fails: true}, Proxmox{"101", ""}); err == nil {
		t.Error("a whole archive of a command that failed counts")
	}
}

// TestHostileArchives checks that damaged archives are refused: each is cut at every kind of place, and changed where no
// checksum notices it.
func TestHostileArchives(t *testing.T) {
	disks := map[string][]byte{"drive-scsi0": randomDisk(4 << 20)}
	good := makeArchive(disks, "drive-scsi0")
	extent := bytes.Index(good, []byte("VMAE"))
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		sumHead(b[:extent], 32)
		sumHead(b[extent:extent+vmaExtentSize], 24)
		return b
	}
	put := binary.BigEndian
	for name, archive := range map[string][]byte{
		"nothing":             nil,
		"half a header":       good[:5000],
		"half of the names":   good[:vmaHeaderSize+3],
		"no extents":          good[:extent],
		"half an extent":      good[:extent+100],
		"half a block":        good[:extent+vmaExtentSize+100],
		"a missing end":       good[:len(good)-1],
		"another version":     change(func(b []byte) { b[7] = 2 }),
		"a huge header":       change(func(b []byte) { put.PutUint32(b[56:], 1<<31) }),
		"huge names":          change(func(b []byte) { put.PutUint32(b[52:], 1<<31) }),
		"a name outside":      change(func(b []byte) { put.PutUint32(b[4096+32:], 511) }),
		"a huge disk":         change(func(b []byte) { put.PutUint64(b[4096+40:], 1<<60) }),
		"a negative disk":     change(func(b []byte) { put.PutUint64(b[4096+40:], 1<<63) }),
		"a larger disk":       change(func(b []byte) { put.PutUint64(b[4096+40:], 64<<20) }),
		"another archive":     change(func(b []byte) { b[extent+8] = 'U' }),
		"a cluster outside":   change(func(b []byte) { put.PutUint32(b[extent+44:], 1<<31) }),
		"a cluster twice":     change(func(b []byte) { put.PutUint32(b[extent+44:], 1) }),
		"a wrong block count": change(func(b []byte) { b[extent+7]++ }),
		"a wrong checksum":    append(bytes.Clone(good[:extent+44]), append([]byte{9}, good[extent+45:]...)...),
	} {
		if _, err := copyProxmox(t, &proxmoxHost{archive: archive}, Proxmox{"101", ""}); bailey.KindOf(err) != bailey.ToolFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := (Proxmox{"101", ""}).Copy(t.Context(), &proxmoxHost{archive: good}, f, func(string, ...any) {}); !errors.Is(err, os.ErrPermission) && err == nil {
		t.Error("a disk that cannot be written counts")
	}
}

// FuzzArchive reads archives. What is read must be inside the disk.
func FuzzArchive(f *testing.F) {
	f.Add(makeArchive(map[string][]byte{"drive-scsi0": randomDisk(3*vmaCluster + 1)}, "drive-scsi0"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		v := &vmaReader{from: bytes.NewReader(archive)}
		// The checksums would hide everything behind them.
		if len(archive) > vmaHeaderSize {
			if size := binary.BigEndian.Uint32(archive[56:]); int64(size) <= int64(len(archive)) && size > vmaHeaderSize {
				sumHead(archive[:size], 32)
				if int(size)+vmaExtentSize <= len(archive) {
					sumHead(archive[size:size+vmaExtentSize], 24)
				}
			}
		}
		if v.readHeader() == nil && v.chooseDisk("") == nil && v.missing < 1<<20 {
			v.copyDisk(insideWriter{t, v.disks[v.device].size})
		}
	})
}

// insideWriter fails the test if it is written outside of its size.
type insideWriter struct {
	t    *testing.T
	size int64
}

func (w insideWriter) WriteAt(b []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(b)) > w.size {
		w.t.Errorf("%d bytes were written at %d of %d", len(b), at, w.size)
	}
	return len(b), nil
}
