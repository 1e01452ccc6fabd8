package direct

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/image"
	"bailey/internal/libvirt"
	"bailey/internal/source"
)

// setSource sets what is imported: a file, or the disk of a machine on a libvirt host, to which it connects. It returns
// the name of the image if no other is given, and a function that ends the connection.
func setSource(ctx context.Context, m *image.Maker, im *image.Import, from, connect string) (string, func() error, error) {
	scheme, rest, isAddress := strings.Cut(from, "://")
	switch {
	case !isAddress && connect != "":
		return "", nil, bailey.Invalid.New("only a disk of a libvirt host has --connect", "leave it out")
	case !isAddress:
		im.File = from
		return strings.ToLower(filepath.Base(from)), func() error { return nil }, nil
	case scheme != "libvirt":
		return "", nil, bailey.Invalid.Errorf("name a file, or libvirt://HOST/MACHINE", "nothing can be imported from %.20q", scheme+"://")
	}
	host, rest, _ := strings.Cut(rest, "/")
	d := libvirt.Disk{Connect: connect}
	d.Machine, d.Target, _ = strings.Cut(rest, "/")
	if host == "" || d.Machine == "" {
		return "", nil, bailey.Invalid.Errorf("use libvirt://HOST/MACHINE, for example libvirt://web1/shop", "%.80q names no machine", from)
	}
	client, done, err := dialAsPerson(ctx, source.Host{Name: host})
	if err != nil {
		return "", nil, err
	}
	im.Fetch = func(ctx context.Context, to io.Writer) (string, string, error) {
		c, err := libvirt.Copy(ctx, client, d, to, func(format string, args ...any) {
			if m.Progress != nil {
				m.Progress(fmt.Sprintf(format, args...))
			}
		})
		return c.Format, fmt.Sprintf("libvirt %s/%s, copied %s", host, d.Machine, c.State), err
	}
	return strings.ToLower(d.Machine), func() error { client.Close(); return done() }, nil
}
