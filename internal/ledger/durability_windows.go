package ledger

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// Durability returns a sentence that says why synced data in dir may still be lost. It returns "" if a sync is as
// durable as the disk itself.
func Durability(dir string) (string, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return "", fmt.Errorf("asking for the volume of %q: %w", dir, err)
	}
	if _, err := windows.GetFileAttributes(name); err != nil {
		return "", fmt.Errorf("asking for the volume of %s: %w", dir, err)
	}
	var volume [windows.MAX_LONG_PATH]uint16
	if err := windows.GetVolumePathName(name, &volume[0], uint32(len(volume))); err != nil {
		return "", fmt.Errorf("asking for the volume of %s: %w", dir, err)
	}
	switch windows.GetDriveType(&volume[0]) {
	case windows.DRIVE_FIXED:
		return "", nil
	case windows.DRIVE_REMOTE:
		return "the ledger lies on a network drive: how durable it is, the server decides", nil
	case windows.DRIVE_RAMDISK:
		return "a disk in memory holds the ledger: a restart of the machine loses it", nil
	}
	return "the ledger lies on a drive that can be taken out, or on one of unknown kind", nil
}
