package hostdisk

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"bailey"
)

// A Proxmox is the disk of a virtual machine of Proxmox VE. It is copied with vzdump, which needs a login as root there:
// the API of Proxmox VE makes backups, but has no request that returns one.
type Proxmox struct {
	Machine string // its number
	Disk    string // for example scsi0; may be empty if the machine has one
}

// Copy writes the disk, as it was when vzdump began, as a raw disk. vzdump writes the backup to its standard output, so
// it leaves no file on the host.
func (d Proxmox) Copy(ctx context.Context, host Host, to *os.File, report Report) (Copied, error) {
	if n, err := strconv.Atoi(d.Machine); err != nil || n < 100 || n > 999999999 {
		return Copied{}, bailey.Invalid.Errorf("use its number as qm list shows it, for example 101",
			"%.80q is not the number of a machine of Proxmox VE", d.Machine)
	}
	report("starting a backup of %s", d.Machine)
	from, into := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		v := &vmaReader{from: from}
		err := v.readHeader()
		if err == nil {
			err = v.chooseDisk(d.Disk)
		}
		if err == nil {
			report("copying %.40q, %d MB", v.disks[v.device].name, v.disks[v.device].size>>20)
			err = v.copyDisk(to)
		}
		if err == nil {
			err = to.Truncate(v.disks[v.device].size)
		}
		from.CloseWithError(err) // ends the command if the archive is refused
		ended <- err
	}()
	log, err := readStream(ctx, host, "vzdump "+quoteWord(d.Machine)+" --stdout 1 --mode snapshot --compress 0 --quiet 1", into)
	into.CloseWithError(err)
	refused := <-ended
	switch {
	case errors.Is(err, errStream):
		return Copied{}, bailey.ToolFailed.Errorf("log in as root to the host on which the machine runs, for example root@pve1, and see qm list",
			"vzdump failed on the host: %.300q", log)
	case err != nil && refused == nil, ctx.Err() != nil:
		return Copied{}, err
	case refused != nil:
		return Copied{}, refused
	}
	return Copied{"raw", "by a backup, with its file systems frozen if its guest agent is enabled"}, nil
}
