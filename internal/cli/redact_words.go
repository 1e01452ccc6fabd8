package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
	"bailey/internal/terminal"
)

// hidden prints the number of redacted values and the command that restores them.
func (a *App) hidden(r apitype.Redacted) error {
	back := ""
	if r.Session != "" {
		back = "bailey redact --restore --session " + string(r.Session)
	}
	if a.JSON {
		return a.Print(struct {
			OK bool `json:"ok"`
			apitype.Redacted
			Restore string `json:"restore,omitempty"`
		}{r.Fault == nil, r, back})
	}
	var parts []string
	for _, h := range r.Categories {
		part := fmt.Sprintf("%d %s", h.Finds, h.Category)
		if h.Distinct < h.Finds {
			part += fmt.Sprintf(" (%d different)", h.Distinct)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		fmt.Fprintln(a.Stderr, "bailey: nothing was found to hide")
	} else {
		fmt.Fprintf(a.Stderr, "bailey: %d hidden: %s\n", r.Hidden, strings.Join(parts, ", "))
	}
	if r.Escaped > 0 {
		fmt.Fprintf(a.Stderr, "  %s escaped\n", times(r.Escaped, "literal token"))
	}
	if r.Lost > 0 {
		fmt.Fprintf(a.Stderr, "  %d of them cannot be given back: a session holds %d texts, of %d MiB together\n", r.Lost, redact.MaxEntries, redact.MaxBytes>>20)
	}
	if back != "" {
		fmt.Fprintf(a.Stderr, "  to give them back in an answer: %s\n", back)
	}
	return nil
}

func (a *App) restored(r apitype.Redacted) error {
	if a.JSON {
		return a.Print(struct {
			OK       bool             `json:"ok"`
			Session  bailey.SessionID `json:"session"`
			Restored int              `json:"restored"`
			Left     int              `json:"left"`
			Missed   []redact.Miss    `json:"missed,omitempty"`
		}{true, r.Session, r.Restored, r.Left, r.Missed})
	}
	fmt.Fprintf(a.Stderr, "bailey: %s given back\n", times(r.Restored, "token"))
	if r.Left == 0 {
		return nil
	}
	stand := "they stand"
	if r.Left == 1 {
		stand = "it stands"
	}
	fmt.Fprintf(a.Stderr, "  %s left as %s\n", times(r.Left, "token"), stand)
	for _, m := range r.Missed {
		why := "is not spelt as a token; correct it or ask the model to copy tokens exactly"
		if m.Spelt {
			why = "is no token of this session"
		}
		fmt.Fprintf(a.Stderr, "  not restored: line %d %s %s\n", m.Line, terminal.Shown(m.Text), why)
	}
	if more := r.Left - len(r.Missed); more > 0 {
		fmt.Fprintf(a.Stderr, "  and %d more\n", more)
	}
	return nil
}

func (a *App) reported(r apitype.Redacted) error {
	if a.JSON {
		return a.Print(struct {
			OK         bool             `json:"ok"`
			Found      int              `json:"found"`
			Categories []apitype.Hidden `json:"categories"`
		}{true, r.Hidden, r.Categories})
	}
	if r.Hidden == 0 {
		_, err := fmt.Fprintln(a.Stdout, "nothing was found to hide")
		return err
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "category\tfinds\tdifferent\tfirst line\t")
	for _, h := range r.Categories {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", h.Category, h.Finds, h.Distinct, h.Line)
	}
	return w.Flush()
}

// times returns a number with its noun.
func times(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
