package direct

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/hostdisk"
	"bailey/internal/image"
	"bailey/internal/source"
)

// setSource sets what is imported: a file, or the disk of a machine on another host, to which it connects. It returns the
// name of the image if no other is given, and a function that ends the connection.
func setSource(ctx context.Context, m *image.Maker, im *image.Import, from, connect string) (string, func() error, error) {
	scheme, rest, isAddress := strings.Cut(from, "://")
	switch {
	case connect != "" && scheme != "libvirt":
		return "", nil, bailey.Invalid.New("only a disk of a libvirt host has --connect", "leave it out")
	case !isAddress:
		im.File = from
		return strings.ToLower(filepath.Base(from)), func() error { return nil }, nil
	}
	host, rest, _ := strings.Cut(rest, "/")
	machine, disk, _ := strings.Cut(rest, "/")
	var d interface {
		Copy(context.Context, hostdisk.Host, *os.File, hostdisk.Report) (hostdisk.Copied, error)
	}
	name := machine
	switch scheme {
	case "libvirt":
		d = hostdisk.Libvirt{Machine: machine, Target: disk, Connect: connect}
	case "proxmox":
		d, name = hostdisk.Proxmox{Machine: machine, Disk: disk}, "vm-"+machine
	default:
		return "", nil, bailey.Invalid.Errorf("name a file, libvirt://HOST/MACHINE or proxmox://HOST/NUMBER",
			"nothing can be imported from %.20q", scheme+"://")
	}
	if host == "" || machine == "" {
		return "", nil, bailey.Invalid.Errorf("use "+scheme+"://HOST/MACHINE", "%.80q names no machine of a host", from)
	}
	client, done, err := dialAsPerson(ctx, source.Host{Name: host})
	if err != nil {
		return "", nil, err
	}
	im.Fetch = func(ctx context.Context, to *os.File) (string, string, error) {
		c, err := d.Copy(ctx, client, to, func(format string, args ...any) {
			if m.Progress != nil {
				m.Progress(fmt.Sprintf(format, args...))
			}
		})
		return c.Format, fmt.Sprintf("%s %s/%s, copied %s", scheme, host, machine, c.State), err
	}
	return strings.ToLower(name), func() error { client.Close(); return done() }, nil
}
