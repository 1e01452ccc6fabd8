package main

import (
	"slices"
	"strings"
)

// variable is a variable's name as it is compared: Path and PATH are one.
func variable(name string) string { return strings.ToUpper(name) }

// inheritsHere lists what programs do not start without, and where a user's directories are.
func inheritsHere(name string) bool {
	return slices.Contains([]string{"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "USERDOMAIN",
		"HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "TEMP", "TMP"}, name)
}
