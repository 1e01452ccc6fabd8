package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	"bailey"
)

// Limits of a process that reads a disk which a stranger made, beside the size of its output.
const (
	toolAddresses = 2 << 20 // KiB of addresses
	toolSeconds   = 3600    // of processor time
)

// convertDisk writes a disk in another format. The format of the source is stated, and it is told to have no image
// below it, so
// no other file is read, whatever the disk says.
func convertDisk(ctx context.Context, format, from, into, to string, size int64) error {
	source := map[string]any{"driver": format, "file": map[string]any{"driver": "file", "filename": from}}
	if format != "raw" {
		source["backing"] = nil
	}
	text, err := json.Marshal(source)
	if err != nil {
		return err
	}
	limits := fmt.Sprintf(`ulimit -c 0 && ulimit -v %d && ulimit -t %d && ulimit -f %d && exec "$@"`,
		toolAddresses, toolSeconds,
		(size+size/1024+64<<20)/512)
	argv := []string{"/bin/sh", "-c", limits, "sh", "qemu-img", "convert", "-O", into, "json:" + string(text), to}
	if err := findTool("qemu-img"); err != nil {
		return err
	}
	return runTool(ctx, argv, nil)
}

// findTool returns an error unless a program exists.
func findTool(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return bailey.Unavailable.Wrapf(err, installHints()[name], "the program %s is missing", name)
	}
	return nil
}
