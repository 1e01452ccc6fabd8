package direct

import (
	"context"
	"fmt"
	"time"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// wrapLog prints the refusals. With follow it queries every second.
func (a *commands) wrapLog(ctx context.Context, follow bool) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	var shown uint64
	for {
		var k apitype.WrapsKnown
		if err := c.Look(ctx, localapi.Query{Verb: apitype.WrapsQuery}, &k); err != nil {
			return err
		}
		if a.JSON && !follow {
			return a.Print(k)
		}
		for _, r := range k.Refused {
			if r.N <= shown {
				continue
			}
			shown = r.N
			if a.JSON {
				err = a.Print(r)
			} else {
				err = a.refusalLine(k, r)
			}
			if err != nil {
				return err
			}
		}
		if !follow {
			if shown == 0 {
				_, err = fmt.Fprintln(a.Stdout, "nothing was refused to an agent inside the wall")
			}
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *commands) refusalLine(k apitype.WrapsKnown, r apitype.RefusedTo) error {
	_, err := fmt.Fprintf(a.Stdout, "%s  %s  %s\n", r.At.Local().Format(time.DateTime), terminal.CutLine(k.Agent(r)), terminal.CutLine(r.Reason))
	if err == nil && r.Hint != "" {
		_, err = fmt.Fprintf(a.Stdout, "  %s\n", terminal.CutLine(r.Hint))
	}
	return err
}
