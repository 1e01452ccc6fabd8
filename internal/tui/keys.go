package tui

import (
	"context"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// handleKey passes a key to the dialog or the prompt if there is one. Otherwise it handles the keys that work on every
// screen, and passes other keys to the top screen.
func (m *Model) handleKey(key, text string) tea.Cmd {
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case m.dialog != nil:
		return m.pressDialog(key)
	case m.prompt != nil:
		return m.pressPrompt(key, text)
	}
	if cmd, ok := m.pressAnywhere(key); ok {
		return cmd
	}
	return m.topScreen().handleKey(m, key, text)
}

func (m *Model) pressDialog(key string) tea.Cmd {
	d := m.dialog
	done, granted := d.handleKey(key, m.c.currentTime())
	if done {
		m.dialog = nil
	}
	if granted {
		return d.do()
	}
	return nil
}

func (m *Model) pressPrompt(key, text string) tea.Cmd {
	p := m.prompt
	done, taken := p.handleKey(key, text)
	if done {
		m.prompt = nil
	}
	if taken {
		return p.do(p.text)
	}
	return nil
}

// pressAnywhere handles the keys that work on every screen.
func (m *Model) pressAnywhere(key string) (cmd tea.Cmd, ok bool) {
	switch key {
	case "?":
		if p, ok := m.topScreen().(*textScreen); !ok || p.title != helpTitle {
			m.pushScreen(&textScreen{title: helpTitle, body: helpLines}, nil)
		}
	case "!":
		if m.now.Killed != "" {
			return m.selectTab(len(tabs) - 1), true
		}
		m.askStop()
	case "r":
		return m.reloadScreen(), true
	case "1", "2", "3", "4", "5":
		return m.selectTab(int(key[0] - '1')), true
	case "tab":
		return m.selectTab((m.tab + 1) % len(tabs)), true
	case "shift+tab":
		return m.selectTab((m.tab + len(tabs) - 1) % len(tabs)), true
	case "esc", "backspace", "q":
		if len(m.over) == 0 {
			if key == "q" {
				return tea.Quit, true
			}
			return nil, true
		}
		m.over, m.said = m.over[:len(m.over)-1], ""
	default:
		return nil, false
	}
	return nil, true
}

// selectTab selects a tab, and loads the data that only this tab shows.
func (m *Model) selectTab(tab int) tea.Cmd {
	m.tab, m.over, m.said = tab, nil, ""
	switch {
	case tabs[tab] == "receipts" && !m.receipts.loaded:
		return m.receipts.loadPage(m, "", nil)
	case tabs[tab] == "grants":
		return m.grants.loadGrants(m)
	}
	return nil
}

// reloadScreen reloads, and starts a gateway if none runs.
func (m *Model) reloadScreen() tea.Cmd {
	switch {
	case m.fault != nil:
		m.setNotice("starting the gateway…")
		return load(m, func(ctx context.Context) (string, error) { return "", m.c.Hand.Wake(ctx) }, m.finishAction)
	case len(m.over) > 0:
		return m.lookOnce()
	case tabs[m.tab] == "receipts":
		return m.receipts.loadPage(m, m.receipts.words, m.receipts.before)
	case tabs[m.tab] == "grants":
		return m.grants.loadGrants(m)
	}
	return m.lookOnce()
}

const helpTitle = "Keys"

var helpLines = strings.Split(strings.TrimSpace(`
1 … 5, Tab     inbox, live calls, receipts, grants, kill switch
↑ ↓ PgUp PgDn  choose, or scroll (also k and j)
Enter          opens the selected line
Escape, q      goes back; q on a list ends the program
r              reloads; starts a gateway if none is running
!              stops everything, after confirmation
?              this page

On a question
g  approves it  d  denies it  t  the exact text that an answer is bound to
[ ]            the previous and the next similar question

The default of every dialog is No. Escape means No, and so does Enter until you
move to Yes. Keys within 300 ms of its opening are ignored.
`), "\n")
