package hostdisk

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"bailey"
)

// The archive that Proxmox VE makes of a machine, VMA 1, as vma_spec.txt of pve-qemu describes it: a header that names the
// disks, then extents of up to 59 clusters. A cluster has 16 blocks, of which those that are not zero follow.
const (
	vmaHeaderSize = 12288 // before the names
	vmaBlobsMost  = 1 << 20
	vmaExtentSize = 512
	vmaClusters   = 59 // of an extent
	vmaBlock      = 4096
	vmaCluster    = 16 * vmaBlock
	vmaDevices    = 256
)

// A vmaDisk is a disk of an archive.
type vmaDisk struct {
	name string // for example drive-scsi0
	size int64
}

// A vmaReader reads one disk from an archive.
type vmaReader struct {
	from    io.Reader
	uuid    [16]byte
	disks   [vmaDevices]vmaDisk
	device  byte     // of the disk that is read
	seen    []uint64 // a bit for each cluster of the disk that was read
	missing int64    // clusters that were not
}

func badArchive(format string, args ...any) error {
	return bailey.ToolFailed.Errorf("see whether vzdump works on the host", "the backup of the host is damaged: "+format, args...)
}

// readHeader reads the names and sizes of the disks.
func (v *vmaReader) readHeader() error {
	head := make([]byte, vmaHeaderSize)
	if _, err := io.ReadFull(v.from, head); err != nil {
		return badArchive("it has no header (%v)", err)
	}
	order := binary.BigEndian
	blobs, size := int64(order.Uint32(head[52:])), int64(order.Uint32(head[56:]))
	switch {
	case string(head[:4]) != "VMA\x00" || order.Uint32(head[4:]) != 1:
		return badArchive("it is not a VMA archive of version 1")
	case order.Uint32(head[48:]) != vmaHeaderSize || blobs > vmaBlobsMost || size < vmaHeaderSize+blobs || size > vmaHeaderSize+vmaBlobsMost+vmaExtentSize:
		return badArchive("its header has an impossible size")
	}
	head = append(head, make([]byte, size-vmaHeaderSize)...)
	if _, err := io.ReadFull(v.from, head[vmaHeaderSize:]); err != nil {
		return badArchive("its header is incomplete (%v)", err)
	}
	if !sumMatches(head, 32) {
		return badArchive("the checksum of its header is wrong")
	}
	copy(v.uuid[:], head[8:])
	names := head[vmaHeaderSize : vmaHeaderSize+blobs]
	for i := range v.disks {
		entry := head[4096+32*i:]
		at, disk := int64(order.Uint32(entry)), vmaDisk{size: int64(order.Uint64(entry[8:]))}
		if i == 0 || at == 0 {
			continue
		}
		if at+2 > blobs || at+2+int64(binary.LittleEndian.Uint16(names[at:])) > blobs {
			return badArchive("the name of a disk is outside of the header")
		}
		disk.name, _, _ = strings.Cut(string(names[at+2:at+2+int64(binary.LittleEndian.Uint16(names[at:]))]), "\x00")
		if disk.size <= 0 || disk.size > longestDisk {
			return badArchive("the disk %.40q has %d bytes", disk.name, disk.size)
		}
		v.disks[i] = disk
	}
	return nil
}

// sumMatches compares the MD5 of a header with the one in it, which counts as zero. It detects damage; a hostile host could
// change the archive in any case.
func sumMatches(head []byte, at int) bool {
	h := md5.New()
	h.Write(head[:at])
	h.Write(make([]byte, md5.Size))
	h.Write(head[at+md5.Size:])
	return string(h.Sum(nil)) == string(head[at:at+md5.Size])
}

// chooseDisk chooses the disk with a name, or the only one.
func (v *vmaReader) chooseDisk(name string) error {
	var names []string
	found := 0
	for i, d := range v.disks {
		short, isDrive := strings.CutPrefix(d.name, "drive-")
		if !isDrive || strings.HasPrefix(short, "efidisk") || strings.HasPrefix(short, "tpmstate") {
			continue
		}
		names = append(names, short)
		if name == "" || short == name {
			v.device = byte(i)
			found++
		}
	}
	switch {
	case found > 1:
		return bailey.Invalid.Errorf("name one of them: "+strings.Join(shortNames(names), ", "),
			"the machine has several disks")
	case found == 0:
		return bailey.NotFound.Errorf("see qm config on the host", "the machine has no such disk (it has %s)",
			strings.Join(shortNames(names), ", "))
	}
	v.missing = (v.disks[v.device].size + vmaCluster - 1) / vmaCluster
	v.seen = make([]uint64, (v.missing+63)/64)
	return nil
}

// copyDisk writes the chosen disk. Blocks that are zero are not written.
func (v *vmaReader) copyDisk(to io.WriterAt) error {
	head, cluster := make([]byte, vmaExtentSize), make([]byte, vmaCluster)
	for {
		if n, err := io.ReadFull(v.from, head); err == io.EOF && n == 0 {
			break
		} else if err != nil {
			return badArchive("it ends in an extent (%v)", err)
		}
		if string(head[:4]) != "VMAE" || string(head[8:24]) != string(v.uuid[:]) || !sumMatches(head, 24) {
			return badArchive("the head of an extent is wrong")
		}
		blocks := 0
		for i := range vmaClusters {
			info := binary.BigEndian.Uint64(head[40+8*i:])
			n, err := v.copyCluster(info, cluster, to)
			if err != nil {
				return err
			}
			blocks += n
		}
		if blocks != int(binary.BigEndian.Uint16(head[6:])) {
			return badArchive("an extent does not have as many blocks as it says")
		}
	}
	if v.missing > 0 {
		return badArchive("it ends before the disk is complete; %d clusters are missing", v.missing)
	}
	return nil
}

// copyCluster reads the blocks of a cluster and writes them if they belong to the disk.
func (v *vmaReader) copyCluster(info uint64, buffer []byte, to io.WriterAt) (blocks int, err error) {
	mask, device, number := uint16(info>>48), byte(info>>32), int64(uint32(info))
	if device == 0 {
		return 0, nil
	}
	ours := device == v.device
	if ours {
		if word, bit := number/64, uint64(1)<<(number%64); number >= (v.disks[device].size+vmaCluster-1)/vmaCluster || v.seen[word]&bit != 0 {
			return 0, badArchive("cluster %d is there twice, or outside of the disk", number)
		} else {
			v.seen[word] |= bit
			v.missing--
		}
	}
	for i := range 16 {
		if mask&(1<<i) == 0 {
			continue
		}
		blocks++
		b := buffer[i*vmaBlock : (i+1)*vmaBlock]
		if _, err := io.ReadFull(v.from, b); err != nil {
			return 0, badArchive("it ends in a block (%v)", err)
		}
		at := number*vmaCluster + int64(i)*vmaBlock
		if left := v.disks[device].size - at; ours && left > 0 {
			if _, err := to.WriteAt(b[:min(vmaBlock, left)], at); err != nil {
				return 0, fmt.Errorf("the disk cannot be written: %w", err)
			}
		}
	}
	return blocks, nil
}
