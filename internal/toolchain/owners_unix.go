//go:build unix

package toolchain

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// owners are the users who may own a toolchain: root, the user of this process, and the owner of the home.
type owners struct {
	uids  [3]uint32
	group uint32 // that has only the person in it
	alone bool   // there is such a group
}

func ownersOf(home string) owners {
	o := owners{uids: [3]uint32{0, uint32(os.Geteuid()), uint32(os.Geteuid())}}
	if info, err := os.Stat(home); err == nil {
		o.uids[2] = info.Sys().(*syscall.Stat_t).Uid
	}
	o.group, o.alone = privateGroup(o.uids[2])
	return o
}

func (o owners) ownsFile(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == o.uids[0] || st.Uid == o.uids[1] || st.Uid == o.uids[2])
}

// othersCanWrite reports whether another user owns the file, or may write it by its mode. Bits for a group do not count if
// the group is root's, or the person's own: many systems give each user such a group, and a umask of 002.
func (o owners) othersCanWrite(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	if !o.ownsFile(info) || mode&0o002 != 0 {
		return true
	}
	gid := info.Sys().(*syscall.Stat_t).Gid
	return mode&0o020 != 0 && gid != 0 && !(o.alone && gid == o.group)
}

// privateGroup returns the group that has the name of a user and no other member.
func privateGroup(uid uint32) (gid uint32, alone bool) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return 0, false
	}
	g, err := user.LookupGroupId(u.Gid)
	id, perr := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil || perr != nil || g.Name != u.Username {
		return 0, false
	}
	text, err := os.ReadFile("/etc/group")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 4 && fields[2] == u.Gid && fields[3] != "" && fields[3] != u.Username {
			return 0, false
		}
	}
	return uint32(id), true
}
