package process

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"bailey"
	"bailey/internal/image"
	"bailey/internal/localapi"
	"bailey/internal/vm"
	"bailey/internal/vmhost"
)

// The user ids of machines if root does not name others: between those of containers (systemd-nspawn(1)) and 1<<31.
const firstUID, numberOfUIDs = 2_000_000_000, 4096

// serveHost runs the host. A client that started it learns whether it serves.
func (p *program) serveHost(ctx context.Context) (err error) {
	ready := localapi.Inherited(os.Getenv(localapi.ReadyVariable))
	os.Unsetenv(localapi.ReadyVariable)
	announced := false
	announce := func(text []byte) {
		if ready != nil && !announced {
			ready.Write(append(text, 0))
			ready.Close()
		}
		announced = true
	}
	defer func() {
		if err != nil {
			text, _ := json.Marshal(localapi.NewFailure(err))
			announce(text)
		}
	}()
	c, err := p.configure()
	if err != nil {
		return err
	}
	c.Ready = func() {
		c.Log.Info("serving", "dir", p.dir, "uid", os.Geteuid(), "pid", os.Getpid())
		announce([]byte("ready"))
	}
	h, err := vmhost.New(c)
	if err != nil {
		return err
	}
	return h.Run(ctx)
}

func (p *program) configure() (vmhost.Config, error) {
	c := vmhost.Config{Dir: p.dir, Socket: p.socket, Emulated: p.emulated, Idle: p.idle, Version: version,
		Log: slog.New(slog.NewTextHandler(p.stderr, nil)), VM: vm.Config{FirstUID: p.firstUID, UIDs: p.numberOfUIDs}}
	if os.Geteuid() == 0 && p.uids == "" {
		c.VM.FirstUID, c.VM.UIDs = firstUID, numberOfUIDs
	}
	if p.cgroup != "" {
		c.VM.Cgroups = []string{p.cgroup}
	}
	if info, err := os.Stat("/dev/kvm"); err == nil {
		c.VM.Groups = groupOf(info)
	}
	var err error
	if c.FindImage, err = OpenImages(p.images); err != nil {
		return c, err
	}
	if p.group != "" {
		c.Admit, err = membersOf(p.group)
	}
	return c, err
}

// OpenImages returns a function that finds images in the store in a directory.
func OpenImages(dir string) (func(name string) (vmhost.Image, error), error) {
	store, err := image.Open(dir)
	if err != nil {
		return nil, err
	}
	return func(name string) (vmhost.Image, error) { return findImage(store, name) }, nil
}

// findImage returns an image that is not removed before it is released.
func findImage(store *image.Store, name string) (vmhost.Image, error) {
	u, err := store.Use(name)
	if err != nil {
		return vmhost.Image{}, err
	}
	i := vmhost.Image{Name: u.Name, Digest: u.Digest, Arch: u.Arch, Kernel: u.Kernel, Initrd: u.Initrd,
		Append:    u.Append,
		DiskBytes: u.DiskBytes, MemoryMB: u.MemoryMB, Release: u.Close}
	for _, l := range u.Layers {
		i.Layers = append(i.Layers, vm.Layer(l))
	}
	return i, nil
}

// membersOf returns a function that says whether a user is in a group now.
func membersOf(name string) (func(uid int) bool, error) {
	if os.Geteuid() != 0 {
		return nil, bailey.Invalid.New("only root can serve a group", "run as root, or without --group")
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return nil, bailey.NotFound.Wrap(err, "the group "+name+" does not exist", "create it: groupadd --system "+name)
	}
	return func(uid int) bool {
		u, err := user.LookupId(strconv.Itoa(uid))
		if err != nil {
			return false
		}
		ids, err := u.GroupIds()
		return err == nil && slices.Contains(ids, g.Gid)
	}, nil
}

// groupOf returns the group of a file, which QEMU needs to open it under a user id of its own.
func groupOf(info os.FileInfo) []int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return []int{int(st.Gid)}
}
