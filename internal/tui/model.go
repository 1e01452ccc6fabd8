package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// screen is one view: its content and its keys.
type screen interface {
	// lines returns lines of at most w cells if possible. Lines after the first h are cut.
	lines(m *Model, w, h int) []string
	keys() string
	// press processes a key, given by its name and the text that it stands for.
	press(m *Model, key, text string) tea.Cmd
}

// Model is the state of the whole screen. Only the event loop may use it.
type Model struct {
	c    Config
	ctx  context.Context
	ink  ink
	w, h int

	tab      int // index in tabs
	inbox    inbox
	live     live
	receipts receipts
	grants   grants
	stop     stop
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
	return &Model{c: c, ctx: ctx, ink: ink(c.Color), w: 80, h: 24, lend: tea.Exec}
}

// names of the tabs, in order
var tabs = [...]string{"inbox", "live", "receipts", "grants", "stop"}

func (m *Model) screens() [len(tabs)]screen {
	return [...]screen{&m.inbox, &m.live, &m.receipts, &m.grants, &m.stop}
}

// top returns the visible screen.
func (m *Model) top() screen {
	if len(m.over) > 0 {
		return m.over[len(m.over)-1]
	}
	return m.screens()[m.tab]
}

type (
	nowMsg struct {
		now Now
		err error
	}
	tickMsg     struct{}
	questionMsg struct {
		q    Question
		last *Question
		err  error
	}
	lastMsg struct {
		id   bailey.ApprovalID
		last *Question
	}
	signedMsg struct {
		q         Question
		signature string
		err       error
	}
	doneMsg struct {
		words string
		err   error
	}
)

// Init starts the first query.
func (m *Model) Init() tea.Cmd { return m.look() }

// Update processes one message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.press(msg.String(), msg.Text)
	case tea.PasteMsg:
		if m.prompt != nil && m.dialog == nil {
			m.prompt.add(msg.Content)
		}
	case tickMsg:
		return m, m.look()
	case nowMsg:
		return m, tea.Batch(m.took(msg), m.tick())
	case onceMsg:
		return m, m.took(nowMsg(msg))
	case questionMsg:
		return m, m.opened(msg)
	case lastMsg:
		m.compare(msg)
	case receiptsMsg:
		m.receipts.set(msg)
	case receiptMsg:
		m.show(&page{title: "Receipt " + string(msg.id), body: msg.lines}, msg.err)
	case verdictMsg:
		title := "The ledger holds"
		if !msg.v.OK {
			title = "THE LEDGER DOES NOT HOLD"
		}
		m.show(&page{title: title, body: msg.v.Lines, bad: !msg.v.OK}, msg.err)
	case grantsMsg:
		m.grants.set(msg)
	case signedMsg:
		return m, m.signed(msg)
	case doneMsg:
		return m, m.done(msg)
	}
	return m, nil
}

// ctxCmd runs a slow function outside the event loop.
func (m *Model) ctxCmd(do func(context.Context) tea.Msg) tea.Cmd {
	ctx := m.ctx
	return func() tea.Msg { return do(ctx) }
}

// tick schedules the next query. It must be called only after a query has returned, so that queries never overlap.
func (m *Model) tick() tea.Cmd {
	if m.c.Every < 0 {
		return nil
	}
	return tea.Tick(m.c.every(), func(time.Time) tea.Msg { return tickMsg{} })
}

func (m *Model) look() tea.Cmd {
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		now, err := m.c.Look.Now(ctx)
		return nowMsg{now, err}
	})
}

// took stores the result of a query, and rings once for each new question.
func (m *Model) took(msg nowMsg) tea.Cmd {
	if m.fault = msg.err; msg.err != nil {
		return nil
	}
	m.now = msg.now
	m.inbox.set(msg.now.Questions)
	for _, s := range m.over {
		if q, ok := s.(*question); ok {
			q.refresh(msg.now.Questions)
		}
	}
	first, fresh := m.known == nil, []Question{}
	known := map[bailey.ApprovalID]bool{}
	for _, q := range msg.now.Questions {
		if known[q.ID] = true; !first && !m.known[q.ID] {
			fresh = append(fresh, q)
		}
	}
	m.known = known
	if len(fresh) == 0 {
		return nil
	}
	m.say("new: " + string(fresh[0].Call) + " by " + fresh[0].Agent + ", in the inbox")
	return tea.Raw("\a")
}

// asks reports whether a dialog or a prompt is open. The question belongs to the content next to it, so no other screen
// may open until it is answered.
func (m *Model) asks() bool { return m.dialog != nil || m.prompt != nil }

// show opens a screen on top, or reports the error.
func (m *Model) show(s screen, err error) {
	if m.asks() {
		return
	}
	if err != nil {
		m.say(inWords(err))
		return
	}
	m.said = ""
	m.over = append(m.over, s)
}

func (m *Model) say(words string) { m.said = words }

// ask opens a dialog. Its quiet time begins now.
func (m *Model) ask(d *dialog) tea.Cmd {
	d.last = m.c.now()
	m.dialog, m.said = d, ""
	return nil
}

// act executes an action of the person, once.
func (m *Model) act(do func(context.Context) (string, error)) tea.Cmd {
	m.say("telling the gateway…")
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		words, err := do(ctx)
		return doneMsg{words, err}
	})
}

// signed sends the answer with its signature.
func (m *Model) signed(msg signedMsg) tea.Cmd {
	if msg.err != nil {
		return m.done(doneMsg{"", msg.err})
	}
	return m.act(func(ctx context.Context) (string, error) { return m.c.Hand.Grant(ctx, msg.q, msg.signature) })
}

// done reports the result of an action, and queries again.
func (m *Model) done(msg doneMsg) tea.Cmd {
	m.say(msg.words)
	if msg.err != nil {
		m.say(inWords(msg.err))
	}
	if n := len(m.over); n > 0 {
		if q, ok := m.over[n-1].(*question); ok && q.sent {
			if q.sent = false; msg.err == nil {
				m.over = m.over[:n-1]
			}
		}
	}
	cmds := []tea.Cmd{m.lookOnce()}
	if m.grants.loaded {
		cmds = append(cmds, m.grants.load(m))
	}
	return tea.Batch(cmds...)
}

// onceMsg is the result of a query outside the regular schedule.
type onceMsg nowMsg

func (m *Model) lookOnce() tea.Cmd {
	look := m.look()
	return func() tea.Msg { return onceMsg(look().(nowMsg)) }
}

// inWords returns an error as text for a person, with its remedy.
func inWords(err error) string {
	if hint := bailey.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

func complaint(i ink, err error, w int) (lines []string) {
	for _, piece := range prose(seen(inWords(err)), w) {
		lines = append(lines, i.bad(piece))
	}
	return lines
}
