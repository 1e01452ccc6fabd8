//go:build linux

package vmhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/hostapi"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
)

const (
	recordFile = "record.json"
	maxRecord  = 64 << 10 // bytes
	// recordDepth is how deep the values of a record are nested.
	recordDepth = 8
)

// A boxRecord is the content of a sandbox's record.json. Its state is that of the last operation: a running sandbox may
// have ended since.
type boxRecord struct {
	hostapi.Sandbox
	UID        int    // of the client that created it
	Generation int    // N of the directory machine-N; 0 if it has none
	Template   string // that its machine was cloned from
	Saved      string `json:",omitempty"` // template of a stopped sandbox
	Marker     guestclient.Marker
	MachineID  string           // machine-id(5) of the guest
	Reach      *hostapi.Network `json:",omitempty"` // of the network names
	Attended   bool             `json:",omitempty"` // it ends with the connection of its client, and with the host
}

// A templateRecord is the content of a template's record.json.
type templateRecord struct {
	hostapi.Snapshot
	Kind        string // see below
	Ready       bool   // it is complete
	UID         int    // of the client, if it is a snapshot
	Marker      guestclient.Marker
	Interfaces  []string `json:",omitempty"` // network interfaces of the guest
	Parent      string   `json:",omitempty"` // the template whose disk is below that of this one
	Accelerator string
	Machine     string
	DiskBytes   int64
}

// Kinds of templates.
const (
	warm      = "warm"      // stays while it is used now and then
	snapshot  = "snapshot"  // stays until its owner removes it
	anonymous = "anonymous" // stays while a sandbox or a template needs it
)

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(sb|sn)-[a-z2-7]{26}$`) })

// namePattern is that of sandboxes and snapshots. It does not match an id, so a reference is one or the other.
var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`) })

func checkName(name string) error {
	if !namePattern().MatchString(name) || idPattern().MatchString(name) {
		return bailey.Invalid.Errorf("use 1 to 32 of a-z, 0-9 and '-', with a letter or digit first, but no id",
			"a sandbox or snapshot cannot have the name %.60q", name)
	}
	return nil
}

// writeRecord replaces record.json in dir at once. Only if durable is set, it survives a crash of the system: no
// machine
// does.
func writeRecord(dir string, record any, durable bool) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, recordFile)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = f.Write(text)
		if durable && err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil && durable {
		err = syncDirectory(dir)
	}
	return explainDisk(err, dir)
}

func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// errRecord is the error for a record that was not written whole or not by this program.
var errRecord = errors.New("the record is damaged")

// readRecord reads record.json in dir. If it is missing or damaged, the error is errRecord.
func readRecord(dir string, into any) error {
	text, err := safefile.Read(filepath.Join(dir, recordFile), maxRecord)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case text == nil:
		return fmt.Errorf("%w: it is missing", errRecord)
	}
	if err = strictjson.Check(text, recordDepth); err == nil {
		err = strictjson.Decode(text, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

// checkFields returns errRecord unless the record can belong to the directory of that id.
func (r *boxRecord) checkFields(id string) error {
	switch {
	case r.ID != id || !idPattern().MatchString(id) || checkName(r.Name) != nil:
		return fmt.Errorf("%w: it is that of %.60q", errRecord, r.ID)
	case r.Generation < 0 || r.State == "" || r.Expires.IsZero():
		return fmt.Errorf("%w: its fields contradict each other", errRecord)
	case r.Template != "" && !idPattern().MatchString(r.Template), r.Saved != "" && !idPattern().MatchString(r.Saved):
		return fmt.Errorf("%w: the id of a template is malformed", errRecord)
	}
	return nil
}

func (r *templateRecord) checkFields(id string) error {
	if r.ID != id || !idPattern().MatchString(id) || r.Parent != "" && !idPattern().MatchString(r.Parent) {
		return fmt.Errorf("%w: it is that of %.60q", errRecord, r.ID)
	}
	if r.Kind != warm && r.Kind != snapshot && r.Kind != anonymous {
		return fmt.Errorf("%w: it has the kind %.60q", errRecord, r.Kind)
	}
	return nil
}

// explainDisk adds the cure to an error of the file system.
func explainDisk(err error, dir string) error {
	switch {
	case err == nil || bailey.HintOf(err) != "":
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return bailey.Unavailable.Wrap(err, "the disk is full: cannot write in "+dir,
			"destroy sandboxes or snapshots, or free space on the file system of "+dir)
	}
	return err
}

// ttlOf returns the time until a sandbox expires.
func (h *Host) ttlOf(asked time.Duration) (time.Duration, error) {
	switch {
	case asked == 0:
		return h.TTL, nil
	case asked < time.Minute || asked > h.MaxTTL:
		return 0, bailey.Invalid.Errorf("use 1m to "+strings.TrimSuffix(h.MaxTTL.String(), "0m0s"),
			"a sandbox cannot live for %v", asked)
	}
	return asked, nil
}
