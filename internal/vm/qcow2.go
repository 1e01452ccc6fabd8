//go:build linux

package vm

import (
	"encoding/binary"
	"io"
	"os"

	"bailey"
)

// The format of qcow2 images, version 3 (docs/interop/qcow2.txt of QEMU).
const (
	qcowMagic       = 0x514649fb
	qcowClusterBits = 16
	qcowCluster     = 1 << qcowClusterBits
	qcowHeader      = 104
	qcowExternal    = 1 << 2   // the data is in another file
	maxDisk         = 16 << 40 // bytes: the first level of tables then has 256 KiB
)

// writeOverlay writes an empty image of size bytes. It names no image below it: QEMU is told that in its arguments.
// Clusters: the header, the table of reference counts, one block of counts, and the first-level table.
func writeOverlay(f io.WriterAt, size int64) error {
	if size <= 0 || size > maxDisk || size%512 != 0 {
		return bailey.Invalid.Errorf("use a multiple of 512 up to 16 TiB", "a disk cannot have %d bytes", size)
	}
	const perTable = qcowCluster / 8                                        // clusters that one second-level table maps
	entries := (size + perTable*qcowCluster - 1) / (perTable * qcowCluster) // of the first level
	tables := (entries*8 + qcowCluster - 1) / qcowCluster                   // clusters
	head := make([]byte, qcowHeader)
	binary.BigEndian.PutUint32(head[0:], qcowMagic)
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint32(head[20:], qcowClusterBits)
	binary.BigEndian.PutUint64(head[24:], uint64(size))
	binary.BigEndian.PutUint32(head[36:], uint32(entries))
	binary.BigEndian.PutUint64(head[40:], 3*qcowCluster) // first-level table
	binary.BigEndian.PutUint64(head[48:], 1*qcowCluster) // table of reference counts
	binary.BigEndian.PutUint32(head[56:], 1)             // its clusters
	binary.BigEndian.PutUint32(head[96:], 4)             // a count has 2^4 bits
	binary.BigEndian.PutUint32(head[100:], qcowHeader)
	counts := make([]byte, 2*(3+tables))
	for i := range int(3 + tables) {
		binary.BigEndian.PutUint16(counts[2*i:], 1)
	}
	for _, part := range []struct {
		at   int64
		data []byte
	}{
		{0, head},
		{qcowCluster, binary.BigEndian.AppendUint64(nil, 2*qcowCluster)},
		{2 * qcowCluster, counts},
		{(3+tables)*qcowCluster - 1, []byte{0}}, // the file has whole clusters
	} {
		if _, err := f.WriteAt(part.data, part.at); err != nil {
			return err
		}
	}
	return nil
}

// diskSize returns the size of the disk in an image.
func diskSize(f *os.File, format string) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if format == "raw" {
		return (info.Size() + 511) / 512 * 512, nil
	}
	head := make([]byte, qcowHeader)
	_, err = f.ReadAt(head, 0)
	version := binary.BigEndian.Uint32(head[4:])
	size := binary.BigEndian.Uint64(head[24:])
	switch {
	case err != nil || binary.BigEndian.Uint32(head) != qcowMagic || version != 2 && version != 3:
		return 0, bailey.Invalid.New(f.Name()+" is not a qcow2 image", "name its format, or import it again")
	case binary.BigEndian.Uint64(head[8:]) != 0, version == 3 && binary.BigEndian.Uint64(head[72:])&qcowExternal != 0:
		// QEMU would not follow it, and a hostile image could name any file of this host.
		return 0, bailey.Invalid.New("the image "+f.Name()+" is incomplete: it is based on another file",
			"convert it with qemu-img convert, and import the result")
	case size == 0 || size > maxDisk || size%512 != 0:
		return 0, bailey.Invalid.Errorf("import it again", "the image %s has a disk of %d bytes", f.Name(), size)
	}
	return int64(size), nil
}
