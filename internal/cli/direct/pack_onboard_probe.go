package direct

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/onboard"
	"bailey/internal/terminal"
	"bailey/pack"
)

// Limits of the probes of a tool.
const (
	maxProbes = 64
	probeTime = 5 * time.Second
)

// prober runs a tool repeatedly, each time in a new cage.
type prober struct {
	app     *cli.App
	cages   bailey.Runner
	tool    string
	command string   // as in a manifest
	read    []string // paths that the manifest shows to the tool
	asked   int
}

// job returns the job of one probe. It contains no data of the user.
func (p *prober) job(args []string) bailey.Job {
	return bailey.Job{Command: p.command, Args: args, Timeout: probeTime, Env: []string{"NO_COLOR=1", "TERM=dumb"},
		Read: append(p.read[:len(p.read):len(p.read)], "/usr/lib/locale/C.utf8")}
}

// prepare plans the first probe, so that the ledger can record it. A second pass adds the libraries of a script's
// interpreter, which is known only after the first.
func (p *prober) prepare(ctx context.Context, o onboarding) (apitype.OnboardQuery, error) {
	var err error
	if p.command, err = program(o.tool); err != nil {
		return apitype.OnboardQuery{}, err
	}
	for _, path := range o.ro {
		place, err := openNamed(path, false)
		if err != nil {
			return apitype.OnboardQuery{}, err
		}
		place.File.Close()
		p.read = append(p.read, place.Path)
	}
	var cage bailey.Cage
	for range 2 {
		run, err := p.cages.Plan(ctx, p.job([]string{"--help"}))
		if err != nil {
			return apitype.OnboardQuery{}, err
		}
		cage = run.Cage()
		run.Close()
		if cage.PlanDigest == "" {
			return apitype.OnboardQuery{}, &bailey.Error{Kind: bailey.Unavailable, Message: "there is no cage here to ask " + o.tool + " in", Hint: "onboard it on Linux; nothing of it was run"}
		}
		libraries := libraries(cage)
		if len(libraries) == 0 || len(o.ro) > 0 || len(p.read) > 0 {
			break
		}
		p.read = libraries
	}
	return apitype.OnboardQuery{OnboardEvent: apitype.OnboardEvent{Tool: o.tool, Probes: maxProbes, Depth: o.depth, ReadOnly: p.read, Cage: cage}, Plan: cage.Plan}, nil
}

// draft runs the probes and writes a manifest. It parses the manifest as it would parse any pack.
func (p *prober) draft(ctx context.Context, o onboarding) (*onboard.Draft, error) {
	tree, err := onboard.Explore(ctx, onboard.Bounds{Depth: o.depth, Probes: maxProbes}, p.probe)
	if err != nil {
		return nil, err
	}
	draft, err := onboard.New(onboard.Tool{Name: filepath.Base(o.tool), Command: p.command, Read: p.read, Root: tree})
	if err != nil {
		return nil, err
	}
	if _, err := pack.Parse(filepath.Join(o.dir, "pack.yaml"), draft.YAML); err != nil {
		return nil, &bailey.Error{Kind: bailey.Internal, Message: "the draft is no pack, which is a fault of this program: " + err.Error(), Hint: "write the pack by hand, and report this with the tool's help"}
	}
	return draft, nil
}

// libraries returns Debian's directories for the modules of the interpreter. Others must be named with --ro.
func libraries(cage bailey.Cage) (dirs []string) {
	for _, p := range cage.Programs {
		var list []string
		switch name := filepath.Base(p.Path); {
		case strings.HasPrefix(name, "python3"):
			list = []string{"/usr/lib/python3", "/usr/lib/" + name}
		case strings.HasPrefix(name, "perl"):
			list = []string{"/usr/share/perl5", "/usr/share/perl"}
		}
		for _, dir := range list {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// errFull ends a probe whose output exceeds the limit.
var errFull = errors.New("the tool wrote more than a help")

// probe runs the tool once. If the tool fails, hangs or writes too much, this is not an error. If no cage can be
// created, it is.
func (p *prober) probe(ctx context.Context, args []string) (stdout, stderr string, err error) {
	p.asked++
	line := strings.Join(append([]string{filepath.Base(p.tool)}, args...), " ")
	fmt.Fprintf(p.app.Stderr, "bailey: probe %d of at most %d: %s\n", p.asked, maxProbes, terminal.Shown(line))
	run, err := p.cages.Plan(ctx, p.job(args))
	if err != nil {
		return "", "", err
	}
	defer run.Close()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, complaint := &heard{full: cancel}, &heard{full: cancel}
	if _, err = run.Start(inner, bailey.Lent{}, bailey.Streams{Stdout: out, Stderr: complaint}); ctx.Err() == nil && errors.Is(context.Cause(inner), errFull) {
		err = nil
	}
	return out.text.String(), complaint.text.String(), err
}

// heard keeps the first [onboard.MaxText] bytes of output.
type heard struct {
	text strings.Builder
	full context.CancelCauseFunc
}

func (h *heard) Write(b []byte) (int, error) {
	room := onboard.MaxText - h.text.Len()
	if h.text.Write(b[:min(room, len(b))]); len(b) > room {
		h.full(errFull)
	}
	return len(b), nil
}
