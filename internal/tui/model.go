// Package tui is the terminal UI. It shows open questions, current calls, receipts and standing grants, and has the
// switch that stops everything. It reads through [Look] and acts through [Hand] when a person says so. It decides
// nothing.
//
// Its rules:
//
//   - A question is shown completely, from the same text that an answer binds. Information that helps to read it
//     follows below.
//   - Every dialog starts at No. Escape is No, and Enter on No is No: to grant, a person must move to Yes or type y.
//     A key counts only if no other key came for 300 ms, so that keys typed before a dialog was visible do not
//     answer it.
//   - The screen does not change while a person works: a new question rings the bell and is announced, but opens
//     nothing.
//   - Foreign text cannot act on the terminal: control characters, direction marks and invisible characters are
//     escaped ([seen]).
//   - Colour must not be the only carrier of information. Any terminal size works: text that does not fit is scrolled or
//     cut with an ellipsis.
//
// [Run] uses the whole screen. [Plain] works line by line, for screen readers and simple terminals.
package tui

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// screen is one view: its content and its keys.
type screen interface {
	// lines returns lines of at most w cells if possible. Lines after the first h are cut.
	renderLines(m *Model, w, h int) []string
	keyHelp() string
	// press processes a key, given by its name and the text that it stands for.
	handleKey(m *Model, key, text string) tea.Cmd
}

// Model is the state of the whole screen. Only the event loop may use it.
type Model struct {
	c    Config
	ctx  context.Context
	ink  textStyler
	w, h int

	tab      int // index in tabs
	inbox    inboxScreen
	live     liveScreen
	receipts receiptsScreen
	grants   grantsScreen
	stop     stopScreen
	over     []screen // screens opened on top; the last is visible
	dialog   *dialog  // gets the keys if it is set
	prompt   *prompt  // the same

	now    Now
	known  map[bailey.ApprovalID]bool // questions that were announced; nil before the first query
	before []Question                 // questions that were shown completely, newest last, for comparison
	said   string                     // result of an action, or news
	fault  error                      // why nothing can be shown

	// lend gives the terminal to a command until it ends.
	lend func(run tea.ExecCommand, then tea.ExecCallback) tea.Cmd
}

// New returns a model that has not loaded anything.
func New(ctx context.Context, c Config) *Model {
	return &Model{c: c, ctx: ctx, ink: textStyler(c.Color), w: 80, h: 24, lend: tea.Exec}
}

// names of the tabs, in order
var tabs = [...]string{"inbox", "live", "receipts", "grants", "stop"}

func (m *Model) tabScreens() [len(tabs)]screen {
	return [...]screen{&m.inbox, &m.live, &m.receipts, &m.grants, &m.stop}
}

// topScreen returns the visible screen.
func (m *Model) topScreen() screen {
	if len(m.over) > 0 {
		return m.over[len(m.over)-1]
	}
	return m.tabScreens()[m.tab]
}

// thenMsg continues in the event loop with the result of work that was done outside of it.
type thenMsg func() tea.Cmd

// load runs a slow function outside the event loop, and then passes its result to then, in the event loop.
func load[T any](m *Model, get func(context.Context) (T, error), then func(T, error) tea.Cmd) tea.Cmd {
	ctx := m.ctx
	return func() tea.Msg {
		v, err := get(ctx)
		return thenMsg(func() tea.Cmd { return then(v, err) })
	}
}

// Init starts the first query.
func (m *Model) Init() tea.Cmd { return m.queryRegularly() }

// Update processes one message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.handleKey(msg.String(), msg.Text)
	case tea.PasteMsg:
		if m.prompt != nil && m.dialog == nil {
			m.prompt.appendText(msg.Content)
		}
	case thenMsg:
		return m, msg()
	}
	return m, nil
}

// queryRegularly queries the state, and schedules the next query when this one has returned, so that queries never
// overlap.
func (m *Model) queryRegularly() tea.Cmd {
	return load(m, m.c.Look.Now, func(now Now, err error) tea.Cmd {
		cmd := m.storeState(now, err)
		if m.c.Every < 0 {
			return cmd
		}
		next := func(time.Time) tea.Msg { return thenMsg(m.queryRegularly) }
		return tea.Batch(cmd, tea.Tick(m.c.queryInterval(), next))
	})
}

// lookOnce queries the state outside the regular schedule.
func (m *Model) lookOnce() tea.Cmd { return load(m, m.c.Look.Now, m.storeState) }

// storeState stores the result of a query, and rings once for each new question.
func (m *Model) storeState(now Now, err error) tea.Cmd {
	if m.fault = err; err != nil {
		return nil
	}
	m.now = now
	m.inbox.setQuestions(now.Questions)
	for _, s := range m.over {
		if q, ok := s.(*questionScreen); ok {
			q.updateFrom(now.Questions)
		}
	}
	first, fresh := m.known == nil, []Question{}
	known := map[bailey.ApprovalID]bool{}
	for _, q := range now.Questions {
		if known[q.ID] = true; !first && !m.known[q.ID] {
			fresh = append(fresh, q)
		}
	}
	m.known = known
	if len(fresh) == 0 {
		return nil
	}
	m.setNotice("new: " + string(fresh[0].Call) + " by " + fresh[0].Agent + ", in the inbox")
	return tea.Raw("\a")
}

// hasOpenDialog reports whether a dialog or a prompt is open. The question belongs to the content next to it, so no other screen
// may open until it is answered.
func (m *Model) hasOpenDialog() bool { return m.dialog != nil || m.prompt != nil }

// pushScreen opens a screen on top, or reports the error.
func (m *Model) pushScreen(s screen, err error) tea.Cmd {
	switch {
	case m.hasOpenDialog():
	case err != nil:
		m.setNotice(inWords(err))
	default:
		m.said, m.over = "", append(m.over, s)
	}
	return nil
}

func (m *Model) setNotice(words string) { m.said = words }

// openDialog opens a dialog. Its quiet time begins now.
func (m *Model) openDialog(d *dialog) tea.Cmd {
	d.last = m.c.currentTime()
	m.dialog, m.said = d, ""
	return nil
}

// runAction executes an action of the person, once.
func (m *Model) runAction(do func(context.Context) (string, error)) tea.Cmd {
	m.setNotice("waiting for the gateway…")
	return load(m, do, m.finishAction)
}

// finishAction reports the result of an action, and queries again.
func (m *Model) finishAction(words string, err error) tea.Cmd {
	m.setNotice(words)
	if err != nil {
		m.setNotice(inWords(err))
	}
	if n := len(m.over); n > 0 {
		if q, ok := m.over[n-1].(*questionScreen); ok && q.sent {
			if q.sent = false; err == nil {
				m.over = m.over[:n-1]
			}
		}
	}
	cmds := []tea.Cmd{m.lookOnce()}
	if m.grants.loaded {
		cmds = append(cmds, m.grants.loadGrants(m))
	}
	return tea.Batch(cmds...)
}

// inWords returns an error as text for a person, with its remedy.
func inWords(err error) string {
	if hint := bailey.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

func errorLines(i textStyler, err error, w int) (lines []string) {
	for _, piece := range wrapWords(escapeText(inWords(err)), w) {
		lines = append(lines, i.errorText(piece))
	}
	return lines
}

// Run shows the whole screen on a terminal until the user quits, or until ctx ends, and then returns the cause of that.
func Run(ctx context.Context, c Config, in, out *os.File) error {
	p := tea.NewProgram(New(ctx, c), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithFPS(20))
	_, err := p.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tea.ErrProgramPanic):
		return bailey.Internal.Wrap(err, "the screen failed", "use bailey tui --plain for the same without a screen")
	}
	return err
}
