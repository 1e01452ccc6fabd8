package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/broker"
)

// applyReport is the answer of apply, as JSON.
type applyReport struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"`
	Digest  string   `json:"digest"`
	Table   []string `json:"table"`
}

// applyTable shows the difference between the file and the table in use, asks for confirmation, and makes the broker
// use the file. If no broker runs, it records this in the journal.
func (p *program) applyTable(ctx context.Context) error {
	s, err := broker.New(broker.Config{Dir: p.dir, Program: version})
	switch {
	case errors.Is(err, bailey.Conflict):
		return p.applyRunning(ctx)
	case err != nil:
		return err
	}
	defer s.Close()
	t, err := s.ReadTable()
	if err != nil {
		return err
	}
	old, lines := s.Applied()
	return p.proposeTable(old, lines, t, s.Apply)
}

// applyRunning applies the file if a broker serves the directory.
func (p *program) applyRunning(ctx context.Context) error {
	socket, err := broker.RunningSocket(p.dir)
	if err != nil {
		return err
	}
	c := broker.Client{Socket: socket, UID: os.Geteuid()}
	t, err := broker.LoadTable(p.dir)
	if err != nil {
		return err
	}
	old, lines, err := broker.LastApplied(p.dir)
	if err != nil {
		return err
	}
	return p.proposeTable(old, lines, t, func(digest string) error { return c.Apply(ctx, digest) })
}

func (p *program) proposeTable(old string, lines []string, t *broker.Table, use func(digest string) error) error {
	now := t.Lines()
	report := applyReport{OK: true, Digest: t.Digest, Table: now, Changed: old != t.Digest}
	if report.Changed {
		words := p.stdout
		if p.json {
			words = p.stderr
		}
		fmt.Fprint(words, diffLines(lines, now))
		if err := p.askConfirmation("Use this table?"); err != nil {
			return err
		}
		if err := use(t.Digest); err != nil {
			return err
		}
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(report)
	}
	if !report.Changed {
		fmt.Fprintln(p.stdout, "nothing to do: this table is already in use")
		return nil
	}
	fmt.Fprintf(p.stdout, "in use: table %.16s…\n", t.Digest)
	return nil
}

// diffLines has one line for each removed or added entry.
func diffLines(old, now []string) string {
	var b strings.Builder
	for _, l := range old {
		if !slices.Contains(now, l) {
			fmt.Fprintln(&b, "-", l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			fmt.Fprintln(&b, "+", l)
		}
	}
	if b.Len() == 0 {
		return "  the same entries: a value in the file, a comment or the layout changed\n"
	}
	return b.String()
}

// askConfirmation asks a person. Every answer except yes means no.
func (p *program) askConfirmation(question string) error {
	if p.yes {
		return nil
	}
	no := bailey.Denied.New("nothing was changed", "answer yes, or use --yes")
	if info, err := p.stdin.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		no.Message = "this asks for confirmation, but there is no terminal"
		return no
	}
	fmt.Fprint(p.stderr, question+" [y/N] ")
	line, err := bufio.NewReader(p.stdin).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return no
	}
	return nil
}
