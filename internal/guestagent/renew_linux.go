package guestagent

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

const minSeed, maxSeed = 32, 512

var (
	hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?$`) })
	keyName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ssh_host_[a-z0-9]{1,32}_key$`) })
)

// renewalFault returns the reason why a renewal is not complete, or "".
func renewalFault(m *guestwire.Renewal) string {
	id, err := hex.DecodeString(m.MachineID)
	switch {
	case len(m.Seed) < minSeed || len(m.Seed) > maxSeed:
		return fmt.Sprintf("its seed has %d bytes, not %d to %d", len(m.Seed), minSeed, maxSeed)
	case m.Clock <= 0:
		return "it has no time"
	case err != nil || len(id) != 16 || strings.ToLower(m.MachineID) != m.MachineID:
		return "its machine id is not 32 hexadecimal digits in lower case"
	case m.Hostname != "" && !hostName().MatchString(m.Hostname):
		return "its host name is not valid"
	}
	for _, k := range m.HostKeys {
		if !keyName().MatchString(k.Name) || k.Private == "" || k.Public == "" {
			return "a host key has no name of the form ssh_host_TYPE_key, or lacks a part"
		}
	}
	return ""
}

// renewIdentity makes another machine of this one. The random numbers come first, because later steps use them. After
// an error it can be repeated.
func (a *Agent) renewIdentity(m *guestwire.Renewal) (guestwire.Message, error) {
	if fault := renewalFault(m); fault != "" {
		return nil, bailey.Invalid.New("the renewal is not valid: "+fault, "Correct the renewal.")
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"random numbers", func() error { return a.sys.addEntropy(m.Seed) }},
		{"clock", func() error { return a.sys.setClock(time.Unix(0, m.Clock)) }},
		{"machine id", func() error { return a.writeMachineID(m.MachineID) }},
		{"host name", func() error { return a.writeHostname(m.Hostname) }},
		{"SSH host keys", func() error { return a.replaceHostKeys(m.HostKeys) }},
		{"network", func() error { return a.sys.network(m.Network, m.All) }},
	} {
		if err := step.do(); err != nil {
			return nil, bailey.Unavailable.Wrapf(err, "Destroy this clone and create another.", "cannot renew the %s: %v", step.name, err)
		}
	}
	return a.readIdentity(true), nil
}

// putFile replaces a file of the system, with its directory.
func (a *Agent) putFile(name, text string, mode uint32) error {
	at := filepath.Join(a.sys.root, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	at, err := replaceFile(at, []byte(text), &guestwire.File{Mode: mode, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	if err != nil {
		return err
	}
	return os.Chmod(at, os.FileMode(mode)) // a former file may have been open to others
}

// writeMachineID writes machine-id(5), and D-Bus's copy if it is a file of its own.
func (a *Agent) writeMachineID(id string) error {
	const dbus = "var/lib/dbus/machine-id"
	if info, err := os.Lstat(filepath.Join(a.sys.root, dbus)); err == nil && info.Mode().IsRegular() {
		if err := a.putFile(dbus, id+"\n", 0o444); err != nil {
			return err
		}
	}
	return a.putFile("etc/machine-id", id+"\n", 0o444)
}

func (a *Agent) writeHostname(name string) error {
	if name == "" {
		return nil
	}
	if err := a.sys.setName(name); err != nil {
		return err
	}
	return a.putFile("etc/hostname", name+"\n", 0o644)
}

const sshDir = "etc/ssh"

// replaceHostKeys writes the given keys, or a new one, and removes all others. A guest without SSH server gets none.
func (a *Agent) replaceHostKeys(keys []guestwire.HostKey) error {
	dir := filepath.Join(a.sys.root, sshDir)
	if _, err := os.Stat(dir); os.IsNotExist(err) && len(keys) == 0 {
		return nil
	}
	if len(keys) == 0 {
		k, err := newHostKey()
		if err != nil {
			return err
		}
		keys = append(keys, k)
	}
	old, err := filepath.Glob(dir + "/ssh_host_*")
	if err != nil {
		return err
	}
	config := ""
	for _, k := range keys {
		written, err := a.writeHostKey(k)
		if err != nil {
			return err
		}
		old = slices.DeleteFunc(old, func(o string) bool { return slices.Contains(written, filepath.Base(o)) })
		config += "HostKey /" + sshDir + "/" + k.Name + "\n"
		if k.Certificate != "" {
			config += "HostCertificate /" + sshDir + "/" + k.Name + "-cert.pub\n"
		}
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if _, err := os.Stat(dir + "/sshd_config.d"); err == nil {
		if err := a.putFile(sshDir+"/sshd_config.d/00-bailey-host-keys.conf", config, 0o644); err != nil {
			return err
		}
	}
	return a.reloadServer()
}

// writeHostKey returns the names of the files that it wrote.
func (a *Agent) writeHostKey(k guestwire.HostKey) (written []string, err error) {
	for _, file := range []struct {
		name, text string
		mode       uint32
	}{{k.Name, k.Private, 0o600}, {k.Name + ".pub", k.Public, 0o644}, {k.Name + "-cert.pub", k.Certificate, 0o644}} {
		if file.text == "" {
			continue
		}
		if err := a.putFile(filepath.Join(sshDir, file.name), file.text, file.mode); err != nil {
			return nil, err
		}
		written = append(written, file.name)
	}
	return written, nil
}

// reloadServer lets a running SSH server read its keys again, sshd(8).
func (a *Agent) reloadServer() error {
	text, err := os.ReadFile(filepath.Join(a.sys.root, "run/sshd.pid"))
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil || pid <= 1 {
		return nil // it is not running
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || string(name) != "sshd\n" {
		return nil // the file is stale
	}
	return unix.Kill(pid, unix.SIGHUP)
}

// newHostKey returns an Ed25519 key in the format of OpenSSH's PROTOCOL.key, without a passphrase.
func newHostKey() (guestwire.HostKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return guestwire.HostKey{}, err
	}
	const kind = "ssh-ed25519"
	field := func(to []byte, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32(to, uint32(len(b))), b...)
	}
	blob := field(field(nil, []byte(kind)), public)
	var check [4]byte
	rand.Read(check[:])
	secret := bytes.Join([][]byte{check[:], check[:], blob, field(nil, private), field(nil, nil)}, nil)
	for i := byte(1); len(secret)%8 != 0; i++ {
		secret = append(secret, i)
	}
	key := append([]byte("openssh-key-v1\x00"), field(field(field(nil, []byte("none")), []byte("none")), nil)...)
	key = binary.BigEndian.AppendUint32(key, 1)
	key = field(field(key, blob), secret)
	return guestwire.HostKey{Name: "ssh_host_ed25519_key",
		Private: string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: key})),
		Public:  kind + " " + base64.StdEncoding.EncodeToString(blob) + "\n"}, nil
}

const maxShown = 16 // host keys and interfaces of an identity, which must fit a frame

func (a *Agent) readIdentity(renewed bool) *guestwire.Identity {
	var name unix.Utsname
	unix.Uname(&name)
	machine, _ := os.ReadFile(filepath.Join(a.sys.root, "etc/machine-id"))
	id := &guestwire.Identity{Hostname: unix.ByteSliceToString(name.Nodename[:]), MachineID: shortText(strings.TrimSpace(string(machine))),
		Clock: time.Now().UnixNano(), Kernel: unix.ByteSliceToString(name.Release[:]), Renewed: renewed}
	keys, _ := filepath.Glob(filepath.Join(a.sys.root, sshDir, "ssh_host_*_key.pub"))
	for _, file := range keys[:min(len(keys), maxShown)] {
		if text, _, err := readBounded(file, 1024); err == nil {
			id.HostKeys = append(id.HostKeys, shortText(strings.TrimSpace(string(text))))
		}
	}
	all, _ := net.Interfaces()
	for _, i := range all {
		if len(id.Network) == maxShown || len(i.HardwareAddr) == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		shown := guestwire.Interface{Name: i.Name, MAC: i.HardwareAddr.String()}
		addresses, _ := i.Addrs()
		for _, address := range addresses[:min(len(addresses), maxAddresses)] {
			shown.Prefix = append(shown.Prefix, address.String())
		}
		id.Network = append(id.Network, shown)
	}
	return id
}
