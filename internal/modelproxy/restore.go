package modelproxy

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"bailey/internal/modelwire"
	"bailey/internal/redact"
)

// replyEditor restores tokens in an answer. It counts for one answer, which one goroutine reads.
type replyEditor struct {
	table            *redact.Table
	render           func(text string) string // nil: no hook has the event
	rendered         map[string]string        // what the hooks made of texts, which many providers repeat at the end
	secrets          []string                 // categories of secrets that file inputs may have back
	restored, misses int
}

func (x *exchange) newReplyEditor(ctx context.Context) *replyEditor {
	return &replyEditor{table: x.p.Table(x.session), secrets: x.p.Restores(), render: x.p.Render(ctx, x.from),
		rendered: map[string]string{}}
}

// maxRender limits the texts that hooks see. It leaves room in a frame of a hook for the escapes of JSON.
const maxRender = 256 << 10

// renderText returns what the hooks make of a text of the model.
func (e *replyEditor) renderText(where modelwire.Where, text string) string {
	if e.render == nil || where.Kind != modelwire.Assistant || text == "" || len(text) > maxRender {
		return text
	}
	made, known := e.rendered[text]
	if !known {
		made = e.table.Prompt(e.render(text)) // a hook may add a secret
		e.rendered[text] = made
	}
	return made
}

// renderingWriter holds a text back until it is complete or too long for hooks.
type renderingWriter struct {
	io.WriteCloser
	e     *replyEditor
	where modelwire.Where
	held  []byte
	long  bool
}

func (w *renderingWriter) Write(p []byte) (int, error) {
	if w.long {
		return w.WriteCloser.Write(p)
	}
	w.held = append(w.held, p...)
	if w.long = len(w.held) > maxRender; w.long {
		if _, err := w.WriteCloser.Write(w.held); err != nil {
			return 0, err
		}
		w.held = nil
	}
	return len(p), nil
}

func (w *renderingWriter) Close() error {
	if len(w.held) > 0 {
		text := w.e.renderText(w.where, string(w.held))
		w.held = nil
		if _, err := io.WriteString(w.WriteCloser, text); err != nil {
			return err
		}
	}
	return w.WriteCloser.Close()
}

// Text edits a whole text.
func (e *replyEditor) Text(where modelwire.Where, text string) string {
	text = e.renderText(where, text)
	if !strings.Contains(text, "[") && !strings.Contains(text, "%5") { // no token, in any spelling
		return text
	}
	var out strings.Builder
	w := e.restorer(where, &out)
	io.WriteString(w, text)
	w.Close()
	return out.String()
}

// Writer edits a text that arrives in pieces.
func (e *replyEditor) Writer(where modelwire.Where, out io.Writer) io.WriteCloser {
	if e.render != nil && where.Kind == modelwire.Assistant {
		return &renderingWriter{WriteCloser: e.restorer(where, out), e: e, where: where}
	}
	return e.restorer(where, out)
}

func (e *replyEditor) restorer(where modelwire.Where, out io.Writer) *countingRestorer {
	return &countingRestorer{Restorer: e.table.RestorerOf(out, e.mayRestore(where)), e: e}
}

// countingRestorer adds its counts at the end.
type countingRestorer struct {
	*redact.Restorer
	e      *replyEditor
	closed bool
}

func (c *countingRestorer) Close() error {
	err := c.Restorer.Close()
	if !c.closed {
		c.closed = true
		c.e.restored += c.Given()
		c.e.misses += c.Left()
	}
	return err
}

// mayRestore returns the categories that a text may have back: none, unless it is an input in which bytes must match
// those of a file. There addresses and names of hosts are restored, and the secrets that the settings name. A command
// line never gets anything back, because it could send it away. Calls to Bailey's own tools need nothing here: the gate
// restores their inputs.
func (e *replyEditor) mayRestore(where modelwire.Where) func(redact.Category) bool {
	if where.Kind != modelwire.ToolInput || !isFileInput(where.Tool, where.Field) {
		return func(redact.Category) bool { return false }
	}
	return func(c redact.Category) bool { return redact.Pseudonym(c) || slices.Contains(e.secrets, c) }
}

// fileTools are the tools of known clients that read and change files, in lower case without underscores, and
// fileFields
// the inputs of them that name a file or hold its text.
var (
	fileTools = []string{"edit", "multiedit", "write", "read", "notebookedit", "notebookread", // Claude Code, opencode
		"applypatch", "patch", // Codex, opencode
		"replace", "writefile", "readfile"} // gemini-cli
	fileFields = []string{"filepath", "path", "absolutepath", "notebookpath", "oldstring", "newstring",
		"content", "newsource",
		"patch", "patchtext", "input"}
)

// isFileInput reports whether an input of a tool is a path or a text of a file.
func isFileInput(tool, field string) bool {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "") }
	if !slices.Contains(fileTools, plain(tool)) {
		return false
	}
	return field == "" || slices.Contains(fileFields, plain(path.Base(field)))
}
