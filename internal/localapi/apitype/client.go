package apitype

// Added says how much of a file Bailey added. Undo removes exactly that much.
type Added string

const (
	AddedDir     Added = "directory" // the directory of the file did not exist
	AddedFile    Added = "file"      // the file did not exist
	AddedServers Added = "servers"   // the file had no list of servers
	AddedServer  Added = "server"    // only the entry
	AddedHooks   Added = "hooks"     // the file had no hooks
	AddedEvent   Added = "event"     // the file had no hook for the event
	AddedHook    Added = "hook"      // only the entry
)

// InFile returns the part of a that is inside the file.
func (a Added) InFile() Added {
	if a == AddedDir {
		return AddedFile
	}
	return a
}
