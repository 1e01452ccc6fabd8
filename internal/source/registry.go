// Package source manages source hosts: real machines that agents may inspect and never change. It keeps the list of the
// hosts, prepares a host and removes the preparation again, and runs commands that only read.
package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
)

// Host is a source host.
type Host struct {
	Name   string   `json:"name"`             // as the person gives it to ssh
	Labels []string `json:"labels,omitempty"` // KEY=VALUE, for policy; sorted
	// SSHConfig is the ssh configuration file that leads to the host, or "" for the person's own.
	SSHConfig string `json:"ssh_config,omitempty"`
	// WithoutLandlock accepts that the kernel of the host does not enforce Landlock. Each receipt says so.
	WithoutLandlock bool       `json:"without_landlock,omitempty"`
	HostKeys        []string   `json:"host_keys,omitempty"` // pinned at the preparation, as in known_hosts without the name
	PreparedAt      *time.Time `json:"prepared_at,omitempty"`
	System          string     `json:"system,omitempty"` // for example "Debian GNU/Linux 12 (bookworm)"
	LandlockABI     int        `json:"landlock_abi,omitempty"`
	// OwnCommands is the digest of the commands of the operator that the preparation brought to the host, or "".
	OwnCommands string `json:"own_commands,omitempty"`
	// Apply says that the host was prepared for playbooks that a person approves (source prepare --apply).
	Apply bool `json:"apply,omitempty"`
}

// Prepared reports whether agents can read the host.
func (h Host) Prepared() bool { return h.PreparedAt != nil && len(h.HostKeys) > 0 }

// Pinned returns the pinned host keys.
func (h Host) Pinned() (keys []ssh.PublicKey, err error) {
	for _, line := range h.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, bailey.Invalid.Wrapf(
				err,
				"prepare the host again",
				"a pinned host key of %s is damaged",
				h.Name,
			)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Registry is the list of source hosts in a file.
type Registry struct {
	Dir string // $BAILEY_HOME

	mu sync.Mutex
}

const (
	registryFile = "hosts.json"
	maxRegistry  = 4 << 20
	maxHosts     = 1000
)

// registryText is the content of the file.
type registryText struct {
	Hosts []Host `json:"hosts"`
}

// List returns all hosts, sorted by name.
func (r *Registry) List() ([]Host, error) {
	path := filepath.Join(r.Dir, registryFile)
	data, err := safefile.ReadPlain(path, maxRegistry)
	if err != nil || data == nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && safefile.Wide(info) {
		return nil, bailey.Denied.Errorf(
			"run: chmod 600 "+path,
			"other users can access %s, which decides where commands go",
			path,
		)
	}
	if err := strictjson.Check(data, 16); err != nil {
		return nil, bailey.Invalid.Wrapf(err, "correct or delete it", "%s is damaged", path)
	}
	var text registryText
	if err := strictjson.Decode(data, &text); err != nil {
		return nil, bailey.Invalid.Wrapf(err, "correct or delete it", "%s is damaged", path)
	}
	return text.Hosts, nil
}

// Find returns a host.
func (r *Registry) Find(name string) (Host, error) {
	hosts, err := r.List()
	if err != nil {
		return Host{}, err
	}
	for _, h := range hosts {
		if h.Name == name {
			return h, nil
		}
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	hint := "add it: bailey source add NAME"
	if len(names) > 0 {
		hint = "known hosts: " + strings.Join(names[:min(len(names), 10)], ", ")
	}
	return Host{}, bailey.NotFound.Errorf(hint, "%q is not a source host", name)
}

// Expand returns names of hosts, each once, in the order given. KEY=VALUE stands for all prepared hosts with this label.
// Other names are not checked.
func (r *Registry) Expand(names []string) (list []string, err error) {
	hosts, err := r.List()
	if err != nil {
		return nil, err
	}
	add := func(name string) {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	for _, name := range names {
		if !strings.Contains(name, "=") {
			add(name)
			continue
		}
		found := false
		for _, h := range hosts {
			if h.Prepared() && slices.Contains(h.Labels, name) {
				found = true
				add(h.Name)
			}
		}
		if !found {
			return nil, bailey.NotFound.Errorf("bailey source list shows hosts and their labels", "no prepared host has the label %.80q", name)
		}
	}
	return list, nil
}

// Put adds a host, or replaces the one of the same name.
func (r *Registry) Put(h Host) error {
	if err := checkHost(h); err != nil {
		return err
	}
	return r.changeList(func(hosts []Host) ([]Host, error) {
		hosts = slices.DeleteFunc(hosts, func(o Host) bool { return o.Name == h.Name })
		if len(hosts) == maxHosts {
			return nil, bailey.Invalid.Errorf("remove some of them", "there are %d hosts already", maxHosts)
		}
		return append(hosts, h), nil
	})
}

// Remove removes a host from the list. It changes nothing on the host.
func (r *Registry) Remove(name string) error {
	return r.changeList(func(hosts []Host) ([]Host, error) {
		return slices.DeleteFunc(hosts, func(o Host) bool { return o.Name == name }), nil
	})
}

func (r *Registry) changeList(do func([]Host) ([]Host, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	hosts, err := r.List()
	if err != nil {
		return err
	}
	if hosts, err = do(hosts); err != nil {
		return err
	}
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(registryText{hosts}, "", "  ")
	if err != nil {
		return err
	}
	return safefile.Put(r.Dir, registryFile, append(data, '\n'), 0o600, nil)
}

var label = sync.OnceValue(
	func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}=[A-Za-z0-9._-]{1,64}$`) },
)

// checkHost checks what a person gives. The name must also be the name of a policy target.
func checkHost(h Host) error {
	if !regexpName().MatchString(h.Name) {
		return bailey.Invalid.Errorf("add an entry Host NAME to ~/.ssh/config, and use that NAME",
			"%.80q cannot be the name of a source host: it needs 1 to 64 letters, digits and . _ -", h.Name)
	}
	for _, l := range h.Labels {
		if !label().MatchString(l) {
			return bailey.Invalid.Errorf("write for example env=prod", "%.80q is not a label", l)
		}
	}
	return nil
}

var regexpName = sync.OnceValue(
	func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) },
)
