package tui

import (
	"context"
	"errors"
	"os"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// Run shows the whole screen on a terminal until the user quits, or until ctx ends, and then returns the cause of that.
func Run(ctx context.Context, c Config, in, out *os.File) error {
	p := tea.NewProgram(New(ctx, c), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithFPS(20))
	_, err := p.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tea.ErrProgramPanic):
		return bailey.Internal.Wrap(err, "the screen broke", "bailey tui --plain shows the same line by line")
	}
	return err
}
