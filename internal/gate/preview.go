package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"bailey"
)

// Limits of a preview. An approval binds the first previewKept bytes of the output as they are, in equal parts for each
// command line. If the output is longer, the approval also binds its size and digest. The text of a question shows as
// much as fits into previewShown bytes in the ledger.
const (
	previewKept  = 64 << 10
	previewShown = 16 << 10
	previewEdge  = 32 << 10 // read beyond the limit, so that a secret at the limit is recognised
	causeKept    = 1 << 10  // standard error of a failed preview, for the gateway log
)

// maxLooking limits the command lines of previews that run at the same time, over all calls. They run before a budget
// counts the call, and each one needs a cage.
const maxLooking = 4

// previewCall prepares a call for the question to a person: it takes snapshots of the files and runs the preview. If a call
// has a preview that cannot be shown, the call is denied.
func (c *callState) previewCall(ctx context.Context) (err error) {
	if _, workflow := c.run.(*workflowRun); workflow { // steps with snapshots or a preview have their own question
		return nil
	}
	if err = c.freezeFiles(ctx); err != nil {
		return err
	}
	paths := c.inputPaths()
	if err = c.renderPreview(paths, ""); err != nil || len(c.looks) == 0 {
		c.describeRun()
		return err
	}
	seen, err := c.runFirstPreview(ctx, paths)
	if err == nil {
		err = c.bindArguments(ctx, paths, seen)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return bailey.Denied.Wrap(err, "cannot show what this call would do, so no approval can be requested",
			cmp.Or(bailey.HintOf(err), "check the inputs; the tool's messages are in the gateway's log"))
	}
	whole, shown := c.previewTexts(seen)
	c.seen = sha256.Sum256([]byte(whole))
	c.preview.Output = bailey.Shown{Text: clipForQuestion(shown), Value: bailey.NewSecret(whole)}
	return nil
}

// describeRun takes the preview from a run that describes itself.
func (c *callState) describeRun() {
	r, ok := c.run.(bailey.DescribedRun)
	if !ok {
		return
	}
	argv, text := r.Describe()
	if text == "" {
		return
	}
	for _, arg := range argv {
		c.preview.Argv = append(c.preview.Argv, c.shownValue(arg))
	}
	c.preview.Output = bailey.Shown{Text: clipForQuestion(c.redactText(text)), Value: bailey.NewSecret(text)}
}

// runFirstPreview runs the preview for the first time. A command line that follows others gets the value that they showed, so
// it describes that value and not a new one with the same name. The second run (see stillShown) runs all of them
// against the current state.
func (c *callState) runFirstPreview(ctx context.Context, paths map[string]string) ([]*previewCapture, error) {
	seen := make([]*previewCapture, len(c.looks))
	if err := c.runPreviews(ctx, seen, func(i int) bool { return !c.manifest.Follows(i) }); err != nil ||
		!slices.Contains(seen, nil) {
		return seen, err
	}
	word, err := c.manifest.Shown(outputGetter(seen))
	if err == nil {
		err = c.renderPreview(paths, word)
	}
	if err != nil {
		return nil, err
	}
	return seen, c.runPreviews(ctx, seen, c.manifest.Follows)
}

// renderPreview renders the preview.
func (c *callState) renderPreview(paths map[string]string, word string) (err error) {
	c.looks, err = c.manifest.Preview(c.input, paths, c.places, word)
	c.preview = bailey.Preview{}
	for i := range c.looks {
		c.looks[i].Session = c.call.Session.ID
		for _, arg := range append([]string{c.looks[i].Command}, c.looks[i].Args...) {
			c.preview.Argv = append(c.preview.Argv, c.shownValue(arg))
		}
	}
	return err
}

// outputGetter returns a function that returns the output of a command line, and whether the output was kept completely.
func outputGetter(seen []*previewCapture) func(look int) (string, bool) {
	return func(look int) (string, bool) {
		s := seen[look]
		if s == nil {
			return "", false
		}
		return string(s.first), s.n <= int64(s.limit)
	}
}

// bindArguments replaces an argument, such as a branch name, with a value from the preview, such as a commit ID, if the manifest
// says so, and plans the run again. The question and the run then have the same argument, even if the name is
// reassigned. bind changes nothing that policy decides on.
func (c *callState) bindArguments(ctx context.Context, paths map[string]string, seen []*previewCapture) (err error) {
	if !c.manifest.Binds() {
		return nil
	}
	if c.argv, err = c.manifest.Bind(c.input, paths, outputGetter(seen)); err != nil {
		return err
	}
	c.argv = c.personArgs(c.argv)
	return c.planRun(ctx)
}

// stillShown runs the preview again between the approval and the run. It returns Conflict if the output differs from
// the approved one.
func (c *callState) stillShown(ctx context.Context) error {
	if len(c.looks) == 0 {
		return nil
	}
	seen := make([]*previewCapture, len(c.looks))
	err := c.runPreviews(ctx, seen, func(int) bool { return true })
	if err == nil {
		if whole, _ := c.previewTexts(seen); sha256.Sum256([]byte(whole)) == c.seen {
			return nil
		}
	}
	return bailey.Conflict.Wrap(err, "the effect has changed since the approval",
		"call again, so that a person is asked about the current effect")
}

// runPreviews runs command lines of the preview and stores their output in seen. They run concurrently because a person waits.
func (c *callState) runPreviews(ctx context.Context, seen []*previewCapture, which func(look int) bool) error {
	errs := make([]error, len(c.looks))
	var looking sync.WaitGroup
	for i, job := range c.looks {
		if !which(i) {
			continue
		}
		looking.Go(func() { seen[i], errs[i] = c.runPreview(ctx, job) })
	}
	looking.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// previewTexts returns the complete output of a preview, and the redacted output for display. If there are several command
// lines, a header with the number of bytes precedes each output, so that text cannot be moved from one to the next.
func (c *callState) previewTexts(seen []*previewCapture) (whole, shown string) {
	var all, text strings.Builder
	for i, s := range seen {
		head := ""
		if len(seen) > 1 {
			head = fmt.Sprintf("[%d/%d: %d bytes]\n", i+1, len(seen), s.n)
		}
		all.WriteString(head + s.String())
		text.WriteString(head + s.redactedText(c.textForPerson))
	}
	return all.String(), text.String()
}

func (c *callState) runPreview(ctx context.Context, job bailey.Job) (out *previewCapture, err error) {
	defer func() {
		if p := recover(); p != nil { // no other code recovers a panic in this goroutine
			err = c.panicError(p)
		}
	}()
	select {
	case c.looking <- struct{}{}:
		defer func() { <-c.looking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	run, err := c.Runners[c.manifest.Isolation].Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := run.Close(); cerr != nil {
			c.Log.Warn("cannot close a preview", "receipt", c.receipt, "err", cerr)
		}
	}()
	cage := run.Cage()
	switch {
	case cage.Kind != c.run.Cage().Kind:
		return nil, bailey.Unavailable.New("its jail would be "+cage.Kind+" instead of the call's", "")
	case cage.Changed(): // no person has accepted the changed program yet
		return nil, bailey.Denied.New(cage.Binary+" has changed since an earlier call",
			"a person can accept it: bailey pack repin "+string(c.manifest.ID))
	}
	out = newPreviewCapture(previewKept / len(c.looks))
	said := newPreviewCapture(causeKept)
	exit, err := run.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: out, Stderr: said})
	switch {
	case err != nil:
		return nil, err
	case exit.TimedOut:
		err = bailey.ToolFailed.Errorf("", "%s took more than %s", job.Command, job.Timeout)
	case exit.Over != "":
		err = bailey.ToolFailed.New(exit.Over, "")
	case exit.Code != 0:
		err = bailey.ToolFailed.Errorf("", "%s exited with code %d", job.Command, exit.Code)
	}
	if err != nil { // The agent gets no details, because it has no approval to read the output yet.
		c.Log.Warn("a preview", "receipt", c.receipt, "err", err, "stderr", said.redactedText(c.redactText))
		return nil, err
	}
	return out, nil
}

// previewCapture keeps the first bytes of a stream, some more for the redactor, and the digest of the whole stream.
type previewCapture struct {
	first []byte // at most limit+previewEdge bytes
	limit int
	n     int64
	sum   hash.Hash
}

func newPreviewCapture(limit int) *previewCapture {
	return &previewCapture{limit: limit, sum: sha256.New()}
}

func (s *previewCapture) Write(b []byte) (int, error) {
	s.first = append(s.first, b[:min(len(b), s.limit+previewEdge-len(s.first))]...)
	s.n += int64(len(b))
	return s.sum.Write(b)
}

// redactedText returns the output for display. It redacts the text before it cuts it, because a truncated secret cannot be
// recognised. It omits the digest, because an attacker could confirm a guessed secret with it.
func (s *previewCapture) redactedText(hide func(string) string) string {
	text := hide(string(s.first))
	if s.n <= int64(s.limit) {
		return text
	}
	most := s.limit
	if s.n > int64(len(s.first)) { // redaction can shorten the text and move the cut end of the buffer closer
		most = min(most, max(0, len(text)-previewEdge))
	}
	return fmt.Sprintf("%s\n[cut: %d bytes]\n", text[:min(most, len(text))], s.n)
}

// String returns the whole output. If the output is too long, it returns the beginning, the size and the digest.
func (s *previewCapture) String() string {
	if s.n <= int64(s.limit) {
		return string(s.first)
	}
	return fmt.Sprintf("%s\n[cut: %d bytes with SHA-256 %s]\n", s.first[:s.limit], s.n,
		hex.EncodeToString(s.sum.Sum(nil)))
}

// clipForQuestion cuts a text to previewShown bytes in the form in which a question is stored: quoted, then quoted again as
// JSON.
func clipForQuestion(s string) string {
	left := previewShown
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			left -= 4
		case r >= 0x20 && r <= 0x7e:
			left--
		case r == utf8.RuneError && n == 1:
			left -= len(`\\x{00}`)
		default:
			left -= len(fmt.Sprintf(`\\u{%x}`, r))
		}
		if left < 0 {
			return s[:i] + "[truncated here: the approval covers all of it]"
		}
		i += n
	}
	return s
}
