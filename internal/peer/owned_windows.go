package peer

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"

	"bailey"
)

// Owned returns an error if another user could change or read dir. Modes mean nothing on Windows, so it checks the
// owner and the access list. They may name only the user, the system and the administrators; the latter two reach
// everything anyway.
func Owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return bailey.Denied.New(dir+" is not a directory", "move it away")
	}
	sd, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	var me *windows.Tokenuser
	if err == nil {
		me, err = windows.GetCurrentProcessToken().GetTokenUser()
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, "whose "+dir+" is cannot be told",
			"set BAILEY_HOME to a directory of your own on NTFS")
	}
	if owner, _, err := sd.Owner(); err != nil || owner == nil || !isTrustedSID(owner, me.User.Sid) {
		return bailey.Denied.Wrap(err, dir+" belongs to somebody else",
			"set BAILEY_HOME to a directory of your own")
	}
	list, _, err := sd.DACL()
	if err == nil {
		err = checkACL(list, me.User.Sid)
	}
	if err != nil {
		return bailey.Denied.Wrap(err, dir+": others could reach in",
			fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r "%%USERNAME%%:(OI)(CI)F"`, dir))
	}
	return nil
}

// isTrustedSID reports whether sid may be named: the user, the system or the administrators.
func isTrustedSID(sid, me *windows.SID) bool {
	return sid.Equals(me) || sid.IsWellKnown(windows.WinLocalSystemSid) ||
		sid.IsWellKnown(windows.WinBuiltinAdministratorsSid)
}

// checkACL returns an error if the access list admits an account that trusted rejects. A missing list admits everyone.
func checkACL(list *windows.ACL, me *windows.SID) error {
	if list == nil {
		return errors.New("it has no access list")
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return err
		}
		switch ace.Header.AceType {
		case windows.ACCESS_DENIED_ACE_TYPE:
			continue
		case windows.ACCESS_ALLOWED_ACE_TYPE:
		default: // object and callback entries have another layout
			return fmt.Errorf("entry %d of its access list is of kind %d, which is not understood", i,
				ace.Header.AceType)
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		// CREATOR OWNER applies only to objects made inside, and represents their creator.
		if !isTrustedSID(sid, me) && !sid.IsWellKnown(windows.WinCreatorOwnerSid) {
			return fmt.Errorf("its access list names %s", sid)
		}
	}
	return nil
}
