package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/safefile"
	"bailey/internal/sandboxdiff"
)

// Formats of an export.
const (
	ansibleFormat = "ansible"
	shellFormat   = "shell"
)

const (
	maxInventory = 128<<20 + 1      // bytes; package sandboxdiff refuses more
	cloneTime    = 30 * time.Minute // until a fresh machine is destroyed if the gateway ends meanwhile
)

// inventoryCommand runs the agent of the sandbox, which started this shell. Its file may be in no directory.
var inventoryCommand = []string{"/bin/sh", "-c", `exec "/proc/$PPID/exe" inventory`}

// listInventory lists what the sandbox has.
func (r *machineRun) listInventory(ctx context.Context) (*sandboxdiff.Inventory, []byte, error) {
	var out, log limitedBuffer
	out.most, log.most = maxInventory, 4<<10
	command := hostapi.Command{Sandbox: r.box.ID, Argv: inventoryCommand, Timeout: r.timeout}
	exit, err := r.client.Exec(ctx, r.owner, command, hostapi.Streams{Stdout: &out, Stderr: &log})
	switch {
	case err != nil:
		return nil, nil, err
	case exit.TimedOut || exit.Code != 0 || exit.Signal != 0:
		return nil, nil, bailey.ToolFailed.Errorf("a sandbox in which /bin/sh cannot run has no inventory; restore it to a snapshot",
			"the sandbox cannot list its files: %s", strings.TrimSpace(log.String()))
	}
	inventory, err := sandboxdiff.ReadInventory(bytes.NewReader(out.Bytes()))
	return inventory, out.Bytes(), err
}

// limitedBuffer keeps the first bytes and drops the rest.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(b.most-b.Len(), 0))])
	return len(p), nil
}

// withClone gives do a run on a fresh machine of the image of the sandbox, and destroys the machine afterwards. Its
// owner is an agent whose name no call has, because a call that found it could change what the image is said to contain.
func (r *machineRun) withClone(ctx context.Context, do func(clone *machineRun) error) (err error) {
	clone := *r
	clone.owner.Agent = "fresh machine " + rand.Text()
	clone.box, err = hostapi.Create.Ask(ctx, r.client, clone.owner, hostapi.CreateRequest{Image: r.box.Image,
		CPUs: r.box.CPUs, MemoryMB: r.box.MemoryMB, TTL: cloneTime})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, gone := hostapi.Destroy.Ask(ctx, r.client, clone.owner, hostapi.Target{Sandbox: clone.box.ID})
		err = errors.Join(err, gone)
	}()
	if clone.box.ImageDigest != r.box.ImageDigest {
		return bailey.Conflict.Errorf("create a sandbox from the image as it is now",
			"the image %s has changed since the sandbox was created", r.box.Image)
	}
	return do(&clone)
}

// imageInventory returns the inventory of the image. It is made once, in a fresh machine, and kept by the digest.
func (r *machineRun) imageInventory(ctx context.Context) (base *sandboxdiff.Inventory, err error) {
	if sum, err := hex.DecodeString(r.box.ImageDigest); err != nil || len(sum) != 32 {
		return nil, bailey.Internal.New("the host of sandboxes names an image without a digest", "restart bailey-host")
	}
	file := filepath.Join(r.inventories, r.box.ImageDigest+".json")
	if f, err := os.Open(file); err == nil {
		base, err = sandboxdiff.ReadInventory(f)
		f.Close()
		if err == nil {
			return base, nil
		}
		os.Remove(file) // it is damaged
	}
	var text []byte
	err = r.withClone(ctx, func(clone *machineRun) (err error) {
		base, text, err = clone.listInventory(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.inventories, 0o700); err == nil { // if it cannot be kept, it is made again
		safefile.Create(file, text, 0o600)
	}
	return base, nil
}

// compareWithImage compares the sandbox with its image.
func (r *machineRun) compareWithImage(ctx context.Context) (*sandboxdiff.Difference, *sandboxdiff.Inventory, error) {
	base, err := r.imageInventory(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, _, err := r.listInventory(ctx)
	if err != nil {
		return nil, nil, err
	}
	return sandboxdiff.Compare(base, now), now, nil
}

func printDifference(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	d, _, err := r.compareWithImage(ctx)
	if err != nil {
		return bailey.Exit{}, err
	}
	return bailey.Exit{}, printJSON(s.Stdout, d)
}

// exportDifference prints the difference as a playbook or a script. The caller gets it redacted, so it also stays in
// the
// sandbox, where its secrets are anyway. Inventories leave out that directory.
func exportDifference(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	d, _, err := r.compareWithImage(ctx)
	if err != nil {
		return bailey.Exit{}, err
	}
	text, file := exportOf(d, r.action.operands[1]), "/tmp/bailey-export.sh"
	if r.action.operands[1] == ansibleFormat {
		file = "/tmp/bailey-export.yml"
	}
	q := hostapi.WriteRequest{Sandbox: r.box.ID, Path: file, Data: text, Mode: 0o600, Parents: true}
	if _, err := hostapi.WriteFile.Ask(ctx, r.client, r.owner, q); err != nil {
		return bailey.Exit{}, err
	}
	if _, err := s.Stdout.Write(text); err != nil {
		return bailey.Exit{}, err
	}
	_, err = fmt.Fprintf(s.Stderr, "without tokens for secrets and addresses it is %s in the sandbox\n", file)
	return bailey.Exit{}, err
}

func exportOf(d *sandboxdiff.Difference, format string) []byte {
	if format == ansibleFormat {
		return d.Ansible()
	}
	return d.Shell()
}

// verification is the answer of verify. The remaining changes lead from the fresh machine to the sandbox.
type verification struct {
	Verified  bool                    `json:"verified"`
	Applied   int                     `json:"appliedBytes"`
	Remaining *sandboxdiff.Difference `json:"remaining"`
}

// verifyExport applies an export, which is standard input or else that of the sandbox, to a fresh machine, and compares
// the two.
func verifyExport(ctx context.Context, r *machineRun, s bailey.Streams) (bailey.Exit, error) {
	d, now, err := r.compareWithImage(ctx)
	if err != nil {
		return bailey.Exit{}, err
	}
	format, text := r.action.operands[1], []byte(nil)
	if s.Stdin != nil {
		if text, err = io.ReadAll(io.LimitReader(s.Stdin, maxFile+1)); err != nil {
			return bailey.Exit{}, err
		}
	}
	if len(text) == 0 {
		text = exportOf(d, format)
	}
	answer := verification{Applied: len(text)}
	err = r.withClone(ctx, func(clone *machineRun) error {
		if err := clone.applyExport(ctx, format, text, s.Stderr); err != nil {
			return err
		}
		got, _, err := clone.listInventory(ctx)
		if err != nil {
			return err
		}
		answer.Remaining = sandboxdiff.Compare(got, now)
		answer.Verified = answer.Remaining.Empty()
		return nil
	})
	if err != nil {
		return bailey.Exit{}, err
	}
	exit := bailey.Exit{}
	if !answer.Verified {
		exit.Code = 1
		for _, c := range answer.Remaining.Changes {
			fmt.Fprintf(s.Stderr, "still differs: %s\n", c.Summary)
		}
	}
	return exit, printJSON(s.Stdout, answer)
}

// applyExport runs an export in the sandbox.
func (r *machineRun) applyExport(ctx context.Context, format string, text []byte, log io.Writer) error {
	const file = "/tmp/bailey-export"
	q := hostapi.WriteRequest{Sandbox: r.box.ID, Path: file, Data: text, Mode: 0o700, Parents: true}
	if _, err := hostapi.WriteFile.Ask(ctx, r.client, r.owner, q); err != nil {
		return err
	}
	command := hostapi.Command{Sandbox: r.box.ID, Argv: []string{"/bin/sh", file}, Timeout: r.timeout}
	if format == ansibleFormat {
		command.Argv = []string{"ansible-playbook", "-i", "localhost,", "-c", "local", file}
	}
	exit, err := r.client.Exec(ctx, r.owner, command, hostapi.Streams{Stdout: log, Stderr: log})
	switch {
	case err != nil && format == ansibleFormat && errors.Is(err, bailey.NotFound):
		return bailey.NotFound.Wrap(err, "the playbook runs inside of the fresh machine",
			"use an image that has ansible-playbook, or verify the shell export")
	case err != nil:
		return err
	case exit.TimedOut || exit.Code != 0 || exit.Signal != 0:
		return bailey.ToolFailed.Errorf("its output says which step failed",
			"the export failed on a fresh machine, with exit code %d", exit.Code)
	}
	return nil
}
