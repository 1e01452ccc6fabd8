// Package ext4 writes ext4 file systems into files. It mounts nothing, creates no other file and needs no rights, so a
// tree from a stranger cannot touch the host, and the owners and devices in it need no root. The same tree gives the same
// bytes. The format is that of fs/ext4 in the kernel's documentation (Documentation/filesystems/ext4).
//
// All tables are at the front (flex_bg, sparse_super2 without backups), so that the data is one piece: a file is
// contiguous. There is a journal, because machines are destroyed without notice.
package ext4

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"time"
)

// The types of a [Node], in Mode, as in stat(2).
const (
	TypeMask  = 0o170000
	Directory = 0o040000
	Regular   = 0o100000
	Symlink   = 0o120000
	CharDev   = 0o020000
	BlockDev  = 0o060000
	FIFO      = 0o010000
	Socket    = 0o140000
)

// A Node is a file without its name. A node with several names is a file with hard links; only directories cannot be.
type Node struct {
	Mode     uint32 // permissions and type
	UID, GID uint32
	MTime    time.Time
	Children map[string]*Node // of a directory
	Size     int64            // of a regular file
	Open     func() io.Reader // content of a regular file with a size, at least that many bytes
	Target   string           // of a symbolic link
	Major    uint32           // of a device
	Minor    uint32
	// Capability is the attribute security.capability (capabilities(7)).
	Capability []byte
}

// Config describes the file system beside its content.
type Config struct {
	Size  int64     // bytes; a multiple of 4096
	Label string    // at most 16 bytes; also makes the UUID
	Time  time.Time // of its creation
}

const (
	block        = 4096
	groupBlocks  = 8 * block // blocks that one bitmap describes
	inodeSize    = 256
	firstInode   = 11       // the first that is not reserved: lost+found
	bytesPerNode = 16 << 10 // of the disk for each file that fits
	maxName      = 255
	maxTarget    = block - 1
	maxDepth     = 512 // of directories: deeper than a path of the kernel (PATH_MAX) with short names can be
	minSize      = 8 << 20
	maxSize      = 8 << 40
)

// ErrFull is returned if the content does not fit.
var ErrFull = errors.New("the file system is too small for its content")

// A writer is a file system that is being written. The first error remains.
type writer struct {
	Config
	to                 io.WriterAt
	blocks, groups     uint32
	inodesPerGroup     uint32
	tables, data, next uint32 // blocks: first inode table, first of data, next free
	inode              uint32 // last given
	inodes             map[*Node]uint32
	links              map[*Node]uint16
	directories        []uint16 // by group
	written            map[*Node]bool
	err                error
}

// Write writes a file system with the tree below root into a file of zeros. If the content does not fit, the error is ErrFull.
func Write(to io.WriterAt, root *Node, c Config) error {
	if c.Size < minSize || c.Size > maxSize || c.Size%block != 0 || len(c.Label) > 16 {
		return fmt.Errorf("a file system cannot have %d bytes and the label %q", c.Size, c.Label)
	}
	w := &writer{Config: c, to: to, blocks: uint32(c.Size / block), inodes: map[*Node]uint32{}, links: map[*Node]uint16{},
		written: map[*Node]bool{}}
	w.groups = (w.blocks + groupBlocks - 1) / groupBlocks
	w.inode = firstInode - 1
	if root.Mode&TypeMask != Directory {
		return errors.New("the root is not a directory")
	}
	own := *root // with lost+found, which a check of the file system demands
	own.Children = map[string]*Node{}
	for name, n := range root.Children {
		own.Children[name] = n
	}
	lost := &Node{Mode: Directory | 0o700, MTime: c.Time}
	own.Children["lost+found"] = lost
	w.inodes[lost], w.inode = firstInode, firstInode
	w.inodes[&own], w.links[&own] = 2, 2
	if err := w.numberNodes(&own, 0); err != nil {
		return err
	}
	w.layOut()
	w.writeTree(&own, 2, lost)
	w.writeJournal()
	w.writeTables()
	return w.err
}

// sortedNames returns the names in a directory.
func sortedNames(n *Node) []string {
	names := make([]string, 0, len(n.Children))
	for name := range n.Children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// numberNodes gives every node below a directory an inode and counts its links.
func (w *writer) numberNodes(dir *Node, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("directories are nested more than %d times", maxDepth)
	}
	for _, name := range sortedNames(dir) {
		n := dir.Children[name]
		if err := checkNode(name, n); err != nil {
			return err
		}
		isDir := n.Mode&TypeMask == Directory
		if isDir && w.links[n] > 0 {
			return fmt.Errorf("the directory %q has two names", name)
		}
		if w.inodes[n] == 0 {
			w.inode++
			w.inodes[n] = w.inode
		}
		if w.links[n]++; w.links[n] > 65000 || isDir && w.links[dir] >= 65000 {
			return fmt.Errorf("%q has too many links", name)
		}
		if isDir {
			w.links[n], w.links[dir] = 2, w.links[dir]+1
			if err := w.numberNodes(n, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkNode(name string, n *Node) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName {
		return fmt.Errorf("a file cannot have the name %.300q", name)
	}
	for _, c := range []byte(name) {
		if c == 0 || c == '/' {
			return fmt.Errorf("a file cannot have the name %q", name)
		}
	}
	switch n.Mode & TypeMask {
	case Directory, CharDev, BlockDev, FIFO, Socket:
	case Regular:
		if n.Size < 0 || n.Size > maxSize || n.Size > 0 && n.Open == nil {
			return fmt.Errorf("the file %q has %d bytes", name, n.Size)
		}
	case Symlink:
		if n.Target == "" || len(n.Target) > maxTarget {
			return fmt.Errorf("the symbolic link %q has a target of %d bytes", name, len(n.Target))
		}
	default:
		return fmt.Errorf("the file %q has the mode %o", name, n.Mode)
	}
	if len(n.Capability) > 32 {
		return fmt.Errorf("the capabilities of %q have %d bytes", name, len(n.Capability))
	}
	return nil
}

// layOut decides where the tables are.
func (w *writer) layOut() {
	const perBlock = block / inodeSize
	count := max(uint64(w.inode)+uint64(w.inode)/4+64, uint64(w.Size/bytesPerNode))
	each := (count/uint64(w.groups) + perBlock) / perBlock * perBlock
	if each > groupBlocks {
		w.err = ErrFull
		return
	}
	w.inodesPerGroup = uint32(each)
	w.tables = 1 + w.descriptorBlocks() + 2*w.groups
	data := uint64(w.tables) + uint64(w.groups)*uint64(w.tableBlocks())
	if data >= uint64(w.blocks) {
		w.err = ErrFull
		return
	}
	w.data = uint32(data)
	w.next = w.data
	w.directories = make([]uint16, w.groups)
}

func (w *writer) descriptorBlocks() uint32 { return (w.groups*32 + block - 1) / block }
func (w *writer) tableBlocks() uint32      { return w.inodesPerGroup * inodeSize / block }

func (w *writer) writeAt(data []byte, at int64) {
	if w.err == nil {
		_, w.err = w.to.WriteAt(data, at)
	}
}

// allocateBlocks returns the first of count contiguous blocks.
func (w *writer) allocateBlocks(count int64) uint32 {
	if w.err == nil && count > int64(w.blocks-w.next) {
		w.err = ErrFull
	}
	if w.err != nil {
		return 0
	}
	first := w.next
	w.next += uint32(count)
	return first
}

// writeTree writes a directory and everything below it.
func (w *writer) writeTree(dir *Node, parent uint32, lost *Node) {
	if w.err != nil {
		return
	}
	self := w.inodes[dir]
	least := 1
	if dir == lost {
		least = 4 // a check of the file system must not have to allocate
	}
	w.directories[(self-1)/w.inodesPerGroup]++
	data := w.directoryData(dir, parent, least)
	first := w.allocateBlocks(int64(len(data) / block))
	w.writeAt(data, int64(first)*block)
	w.writeInode(dir, int64(len(data)), first)
	for _, name := range sortedNames(dir) {
		n := dir.Children[name]
		switch {
		case n.Mode&TypeMask == Directory:
			w.writeTree(n, self, lost)
		case !w.written[n]:
			w.written[n] = true
			w.writeFile(n)
		}
	}
}

// directoryData returns the blocks of a directory. A name is contained in one block; the last of a block has its rest.
func (w *writer) directoryData(dir *Node, parent uint32, least int) []byte {
	var data []byte
	last := -1 // offset of the last entry
	add := func(inode uint32, name string, kind byte) {
		need := (8 + len(name) + 3) &^ 3
		if free := -len(data) & (block - 1); last >= 0 && need > free {
			binary.LittleEndian.PutUint16(data[last+4:], uint16(len(data)-last+free))
			data = append(data, make([]byte, free)...)
		}
		last = len(data)
		data = append(data, make([]byte, need)...)
		binary.LittleEndian.PutUint32(data[last:], inode)
		binary.LittleEndian.PutUint16(data[last+4:], uint16(need))
		data[last+6], data[last+7] = byte(len(name)), kind
		copy(data[last+8:], name)
	}
	add(w.inodes[dir], ".", 2)
	add(parent, "..", 2)
	for _, name := range sortedNames(dir) {
		n := dir.Children[name]
		add(w.inodes[n], name, entryTypes()[n.Mode&TypeMask])
	}
	free := -len(data) & (block - 1)
	binary.LittleEndian.PutUint16(data[last+4:], uint16(len(data)-last+free))
	data = append(data, make([]byte, free)...)
	for len(data) < least*block {
		empty := make([]byte, block)
		binary.LittleEndian.PutUint16(empty[4:], block)
		data = append(data, empty...)
	}
	return data
}

func entryTypes() map[uint32]byte {
	return map[uint32]byte{Regular: 1, Directory: 2, CharDev: 3, BlockDev: 4, FIFO: 5, Socket: 6, Symlink: 7}
}

// writeFile writes a node that is not a directory.
func (w *writer) writeFile(n *Node) {
	switch n.Mode & TypeMask {
	case Regular:
		first := w.allocateBlocks((n.Size + block - 1) / block)
		if n.Size > 0 && w.err == nil {
			at := io.NewOffsetWriter(w.to, int64(first)*block)
			_, w.err = io.CopyN(at, n.Open(), n.Size)
		}
		w.writeInode(n, n.Size, first)
	case Symlink:
		first := uint32(0)
		if len(n.Target) >= 60 {
			first = w.allocateBlocks(1)
			w.writeAt([]byte(n.Target), int64(first)*block)
		}
		w.writeInode(n, int64(len(n.Target)), first)
	default:
		w.writeInode(n, 0, 0)
	}
}

// writeInode writes the inode of a node whose content is contiguous from block first on.
func (w *writer) writeInode(n *Node, size int64, first uint32) {
	b := w.newInode(n.Mode, size, w.links[n], n.MTime)
	binary.LittleEndian.PutUint16(b[2:], uint16(n.UID))
	binary.LittleEndian.PutUint16(b[24:], uint16(n.GID))
	binary.LittleEndian.PutUint16(b[120:], uint16(n.UID>>16))
	binary.LittleEndian.PutUint16(b[122:], uint16(n.GID>>16))
	switch kind := n.Mode & TypeMask; {
	case kind == Symlink && first == 0:
		copy(b[40:100], n.Target)
	case kind == Regular || kind == Directory || kind == Symlink:
		w.putExtents(b, size, first)
	case kind == CharDev || kind == BlockDev:
		if n.Major < 256 && n.Minor < 256 {
			binary.LittleEndian.PutUint32(b[40:], n.Major<<8|n.Minor)
		} else {
			binary.LittleEndian.PutUint32(b[44:], n.Minor&0xff|n.Major<<8|n.Minor&^0xff<<12)
		}
	}
	if len(n.Capability) > 0 {
		putCapability(b, n.Capability)
	}
	w.putInode(w.inodes[n], b)
}

func (w *writer) newInode(mode uint32, size int64, links uint16, at time.Time) []byte {
	b := make([]byte, inodeSize)
	binary.LittleEndian.PutUint16(b[0:], uint16(mode))
	binary.LittleEndian.PutUint32(b[4:], uint32(size))
	binary.LittleEndian.PutUint32(b[108:], uint32(size>>32))
	binary.LittleEndian.PutUint16(b[26:], links)
	for _, offset := range []int{8, 12, 16, 144} {
		binary.LittleEndian.PutUint32(b[offset:], unixTime(at))
	}
	binary.LittleEndian.PutUint16(b[128:], 32) // bytes of the fields after the first 128
	return b
}

// unixTime returns seconds within what 32 bits express.
func unixTime(at time.Time) uint32 {
	return uint32(min(max(at.Unix(), 0), 1<<31-1))
}

func (w *writer) putInode(number uint32, b []byte) {
	group, index := (number-1)/w.inodesPerGroup, (number-1)%w.inodesPerGroup
	w.writeAt(b, (int64(w.tables)+int64(group)*int64(w.tableBlocks()))*block+int64(index)*inodeSize)
}

// putExtents describes contiguous blocks: up to four extents in the inode, or a block with more.
func (w *writer) putExtents(b []byte, size int64, first uint32) {
	const most, perInode, perBlock = 32768, 4, (block - 12) / 12
	count := uint32((size + block - 1) / block)
	var extents []byte
	for at := uint32(0); at < count; at += most {
		extents = binary.LittleEndian.AppendUint32(extents, at)
		extents = binary.LittleEndian.AppendUint32(extents, min(most, count-at)) // and the upper half of the start: 0
		extents = binary.LittleEndian.AppendUint32(extents, first+at)
	}
	head := func(entries, most, depth int) []byte {
		h := make([]byte, 12)
		for i, v := range []uint16{0xf30a, uint16(entries), uint16(most), uint16(depth)} {
			binary.LittleEndian.PutUint16(h[2*i:], v)
		}
		return h
	}
	entries, used := len(extents)/12, int64(count)
	switch {
	case entries <= perInode:
		copy(b[40:100], append(head(entries, perInode, 0), extents...))
	case entries <= perBlock:
		leaf := w.allocateBlocks(1)
		used++
		w.writeAt(append(head(entries, perBlock, 0), extents...), int64(leaf)*block)
		index := append(head(1, perInode, 1), make([]byte, 12)...)
		binary.LittleEndian.PutUint32(index[16:], leaf)
		copy(b[40:100], index)
	case w.err == nil:
		w.err = fmt.Errorf("a file of %d bytes is too large", size)
	}
	binary.LittleEndian.PutUint32(b[32:], 0x80000) // the content is described by extents
	binary.LittleEndian.PutUint32(b[28:], uint32(used*(block/512)))
	binary.LittleEndian.PutUint16(b[116:], uint16(used*(block/512)>>32))
}

// putCapability writes the attribute behind the fields of the inode: a magic number, one entry, and the value at the end.
func putCapability(b, value []byte) {
	const name, security = "capability", 6
	area := b[160:]
	binary.LittleEndian.PutUint32(area, 0xea020000)
	entry := area[4:]
	at := (len(entry) - len(value)) &^ 3
	entry[0], entry[1] = byte(len(name)), security
	binary.LittleEndian.PutUint16(entry[2:], uint16(at))
	binary.LittleEndian.PutUint32(entry[8:], uint32(len(value)))
	copy(entry[16:], name)
	copy(entry[at:], value)
}

// writeJournal writes inode 8 with an empty journal (fs/jbd2). Its numbers are big endian.
func (w *writer) writeJournal() {
	if w.err != nil {
		return
	}
	count := uint32(1024)
	for count < 16384 && count < w.blocks/64 {
		count *= 2
	}
	first := w.allocateBlocks(int64(count))
	b := w.newInode(Regular|0o600, int64(count)*block, 1, w.Time)
	w.putExtents(b, int64(count)*block, first)
	w.putInode(8, b)
	head := make([]byte, 1024)
	for i, v := range []uint32{0xc03b3998, 4, 0, block, count, 1, 1} { // type 4, blocks, the first block, the first number
		binary.BigEndian.PutUint32(head[4*i:], v)
	}
	copy(head[48:], w.makeUUID())
	binary.BigEndian.PutUint32(head[64:], 1) // file systems that use it
	w.writeAt(head, int64(first)*block)
}

func (w *writer) makeUUID() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "bailey ext4 %s %d %d", w.Label, w.Size, w.Time.Unix()))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562, version 8
	return sum[:16]
}

// writeTables writes the bitmaps, the descriptors of groups and the superblock.
func (w *writer) writeTables() {
	descriptors := make([]byte, 32*w.groups)
	blockMaps, nodeMaps := 1+w.descriptorBlocks(), 1+w.descriptorBlocks()+w.groups
	freeBlocks, freeNodes := uint32(0), uint32(0)
	for g := range w.groups {
		nodes, begin := w.countUsed(g, w.inodesPerGroup, w.inode), g*groupBlocks
		used, here := w.countUsed(g, groupBlocks, w.next), min(groupBlocks, w.blocks-begin)
		w.writeAt(usedBits(used, here), int64(blockMaps+g)*block)
		w.writeAt(usedBits(nodes, w.inodesPerGroup), int64(nodeMaps+g)*block)
		d := descriptors[32*g:]
		for i, v := range []uint32{blockMaps + g, nodeMaps + g, w.tables + g*w.tableBlocks()} {
			binary.LittleEndian.PutUint32(d[4*i:], v)
		}
		binary.LittleEndian.PutUint16(d[12:], uint16(here-used))
		binary.LittleEndian.PutUint16(d[14:], uint16(w.inodesPerGroup-nodes))
		binary.LittleEndian.PutUint16(d[16:], w.directories[g])
		freeBlocks += here - used
		freeNodes += w.inodesPerGroup - nodes
		if w.err != nil {
			return
		}
	}
	w.writeAt(descriptors, block)
	w.writeAt(w.superBlock(freeBlocks, freeNodes), 1024)
	w.writeAt([]byte{0}, w.Size-1)
}

// countUsed returns how many of a group's items are among the first used of all.
func (w *writer) countUsed(group, perGroup, used uint32) uint32 {
	if uint64(used) <= uint64(group)*uint64(perGroup) {
		return 0
	}
	return min(perGroup, used-group*perGroup)
}

// usedBits returns a block whose first used bits are set, and those behind size, which do not exist.
func usedBits(used, size uint32) []byte {
	b := make([]byte, block)
	for i := range uint32(8 * block) {
		if i < used || i >= size {
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

func (w *writer) superBlock(freeBlocks, freeNodes uint32) []byte {
	const journal, attributes, hashed, noBackups = 0x4, 0x8, 0x20, 0x200
	const fileTypes, extents, flexible = 0x2, 0x40, 0x200
	const largeFiles, hugeFiles, manyLinks, largeNodes = 0x2, 0x8, 0x20, 0x40
	b, now := make([]byte, 1024), unixTime(w.Time)
	for offset, v := range map[int]uint32{
		0: w.inodesPerGroup * w.groups, 4: w.blocks, 12: freeBlocks, 16: freeNodes, 24: 2, 28: 2, 32: groupBlocks,
		36: groupBlocks, 40: w.inodesPerGroup, 48: now, 64: now, 76: 1, 84: firstInode, 224: 8, 264: now,
		92: journal | attributes | hashed | noBackups, 96: fileTypes | extents | flexible,
		100: largeFiles | hugeFiles | manyLinks | largeNodes, 352: 2, // names are hashed as unsigned bytes
	} {
		binary.LittleEndian.PutUint32(b[offset:], v)
	}
	for offset, v := range map[int]uint16{54: 0xffff, 56: 0xef53, 58: 1, 60: 1, 88: inodeSize, 254: 0, 348: 32, 350: 32} {
		binary.LittleEndian.PutUint16(b[offset:], v)
	}
	b[252] = 1 // hash: half of MD4
	b[372] = byte(bits.Len32(w.groups - 1))
	copy(b[104:], w.makeUUID())
	copy(b[120:136], w.Label)
	copy(b[236:], w.makeUUID()) // seed of hashes
	return b
}
