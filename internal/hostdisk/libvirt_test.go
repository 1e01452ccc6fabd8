package hostdisk

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/remote"
)

// A saidHost answers each command of virsh with a text, whatever else is in the line.
type saidHost map[string]string

func (s saidHost) Run(_ context.Context, c remote.Command) (remote.Result, error) {
	for name, text := range s {
		if strings.Contains(c.Line, " '"+name+"' ") {
			if text, failed := strings.CutPrefix(text, "!"); failed {
				io.WriteString(c.Stderr, text)
				return remote.Result{Code: 1}, nil
			}
			io.WriteString(c.Stdout, text)
			return remote.Result{}, nil
		}
	}
	return remote.Result{}, nil
}

// TestHostileHost checks that names which are no names reach no host, and that answers which make no sense are refused.
func TestHostileHost(t *testing.T) {
	copyFrom := func(h Host, d Libvirt) error {
		_, err := d.Copy(t.Context(), h, nil, func(string, ...any) {})
		return err
	}
	for _, d := range []Libvirt{{}, {Machine: "a b"}, {Machine: "-c"}, {Machine: "a;reboot"}, {Machine: "a'b"}, {Machine: "a\nb"},
		{Machine: strings.Repeat("a", 201)}, {Machine: "a", Target: "../x"}, {Machine: "a", Target: "-x"}, {Machine: "a", Connect: "test:///'x"}} {
		if err := copyFrom(nil, d); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%+v: %v", d, err)
		}
	}
	const list = "file disk vda /pool/a.qcow2"
	for name, tt := range map[string]struct {
		host saidHost
		want string
	}{
		"no answer":       {saidHost{}, "has no such disk"},
		"a network disk":  {saidHost{"domblklist": "network disk vda pool/a"}, "has no such disk"},
		"a relative path": {saidHost{"domblklist": "file disk vda a"}, "has no such disk"},
		"half a line":     {saidHost{"domblklist": "file disk\nfile"}, "has no such disk"},
		"no pool":         {saidHost{"domblklist": list, "vol-pool": "!error: no storage vol"}, "belongs to no storage pool"},
		"another state":   {saidHost{"domblklist": list, "domstate": "crashed"}, `in the state "crashed"`},
		"no XML":          {saidHost{"domblklist": list, "domstate": "shut off", "vol-dumpxml": "<volume"}, "cannot be read"},
		"another format":  {saidHost{"domblklist": list, "domstate": "shut off", "vol-dumpxml": "<volume><target><format type='vdi'/></target></volume>"}, `format "vdi"`},
		"a failed backup": {saidHost{"domblklist": list, "domstate": "running", "domjobinfo": "Job type: None"}, "failed"},
		"no virsh":        {saidHost{"domblklist": "!sh: 1: virsh: not found"}, "virsh failed on the host"},
	} {
		err := copyFrom(tt.host, Libvirt{Machine: "a"})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestBackupStops checks that waiting for a job that does not end stops with the context.
func TestBackupStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := saidHost{"domblklist": "file disk vda /pool/a.qcow2", "domstate": "running", "domjobinfo": "Job type: Unbounded\nFile processed: 1 MiB"}
	c := &copier{h, Libvirt{Machine: "a"}, func(format string, _ ...any) {
		if strings.HasPrefix(format, "backed up") {
			cancel()
		}
	}, time.Now, time.Millisecond}
	if _, err := c.copyDisk(ctx, io.Discard); err == nil || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}
