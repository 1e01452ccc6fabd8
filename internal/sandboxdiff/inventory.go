// Package sandboxdiff says how a sandbox differs from the image that it started from, and writes the difference as a
// playbook of Ansible or as a script.
//
// [Collect] lists a root file system as an [Inventory]: files, packages, services, users and groups. In a sandbox
// `bailey-guest inventory` prints it as JSON; [ReadInventory] reads it on the host, which trusts nothing in it.
// [Compare] returns the [Difference] of two inventories in the terms of an administrator: an installed package explains
// its own files, its account and its service. [Difference.Ansible] and [Difference.Shell] export it; applied to a fresh
// clone of the image, they make Compare of the sandbox and the clone empty, or [Difference.Notes] says what they lack.
package sandboxdiff

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"bailey"
)

// The directories of a system's own units of systemd and of OpenRC's runlevels.
const unitDir, runlevels = "/etc/systemd/system", "/etc/runlevels"

// Version is the version of the JSON document of an inventory.
const Version = 1

// Inventory is the content of one root file system. Its lists are sorted and name each thing once.
type Inventory struct {
	Version  int       `json:"version"`
	OS       string    `json:"os"`      // ID of os-release(5), for example debian
	Release  string    `json:"release"` // its VERSION_ID
	Files    []File    `json:"files"`
	Packages []Package `json:"packages"`
	Services []Service `json:"services"`
	Users    []User    `json:"users"`
	Groups   []Group   `json:"groups"`
	Omitted  []Omitted `json:"omitted"` // paths that may exist and are not compared
}

// WriteJSON writes the inventory as one JSON document, with a newline. A document that [ReadInventory] would refuse for
// its size is not written.
func (v *Inventory) WriteJSON(w io.Writer) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) >= maxDocument {
		return bailey.Invalid.New(fmt.Sprintf("the inventory has more than %d MiB", maxDocument>>20),
			"Remove files that need not be compared, or move them to /tmp.")
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// Omitted is one path that an inventory could not read, with the reason.
type Omitted struct {
	Path   Text   `json:"path"`
	Reason string `json:"reason"`
}

// The types of a file.
const (
	Regular   = "file"
	Directory = "directory"
	Link      = "link"
	Special   = "special" // a device or a named pipe
)

// File is one file. Its path is absolute and clean. Mode has the permissions with setuid, setgid and sticky bit, as
// chmod(1) takes them. Owner and Group are names, or numbers without one.
type File struct {
	Path    Text   `json:"path"`
	Type    string `json:"type"`
	Mode    uint32 `json:"mode"`
	Owner   string `json:"owner"`
	Group   string `json:"group"`
	Size    int64  `json:"size,omitempty"`
	SHA256  string `json:"sha256,omitempty"`  // of a regular file, in hexadecimal
	Target  Text   `json:"target,omitempty"`  // of a link
	Content *Text  `json:"content,omitempty"` // of a small regular file that no package explains
	Package string `json:"package,omitempty"` // the package that ships this file; of a regular file: with this content
}

// Package is one installed package of dpkg or apk.
type Package struct {
	Name     string   `json:"name"` // with :ARCH if it is of a foreign architecture
	Version  string   `json:"version"`
	Auto     bool     `json:"auto,omitempty"`     // installed as a dependency
	Accounts []string `json:"accounts,omitempty"` // users and groups that its installation creates
}

// The states of a service.
const (
	Enabled  = "enabled"
	Disabled = "disabled"
	Masked   = "masked"
	Static   = "static" // it cannot be enabled
)

// Service is one unit of systemd, for example cron.service, or one service of OpenRC.
type Service struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Wanted  []string `json:"wanted,omitempty"`  // what starts it, for example multi-user.target or a runlevel
	Package string   `json:"package,omitempty"` // that ships it
	Default string   `json:"default,omitempty"` // the state that its package's installation gives it
}

// User is one line of passwd(5). Password is the state of its password in shadow(5), never the hash.
type User struct {
	Name     string   `json:"name"`
	UID      uint32   `json:"uid"`
	Group    string   `json:"group"`
	Groups   []string `json:"groups,omitempty"` // supplementary ones
	Comment  string   `json:"comment,omitempty"`
	Home     string   `json:"home"`
	Shell    string   `json:"shell"`
	Password string   `json:"password"`          // one of none, set, locked
	Expires  string   `json:"expires,omitempty"` // days since 1970
}

// The states of a password.
const (
	PasswordNone   = "none"
	PasswordSet    = "set"
	PasswordLocked = "locked"
)

// Group is one line of group(5). Its members are in [User.Groups].
type Group struct {
	Name string `json:"name"`
	GID  uint32 `json:"gid"`
}

// Text is bytes. It is a JSON string if it is UTF-8, and {"base64": "…"} otherwise: file names need not be UTF-8.
type Text string

type rawText struct {
	Base64 string `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(rawText{base64.StdEncoding.EncodeToString([]byte(t))})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(t))
	}
	var raw struct {
		Base64 *string `json:"base64"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	if raw.Base64 == nil {
		return errors.New(`a text is neither a string nor {"base64": "…"}`)
	}
	b, err := base64.StdEncoding.DecodeString(*raw.Base64)
	*t = Text(b)
	return err
}
