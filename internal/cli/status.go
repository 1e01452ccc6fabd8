package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

const (
	noGateway = "no gateway is running; the next call starts one"
	Walled    = "none can be reached from inside of a wall, but for calls"
)

// stopped returns the status if no gateway is running.
func stopped(home localapi.Home, hint string) apitype.Status {
	return apitype.Status{Home: string(home), Hint: hint, Calls: []apitype.LiveCall{}, Sessions: []apitype.LiveSession{}, Agents: apitype.NewAgentStatus(nil)}
}

func (a *App) statusVerb() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "What is running, what it stands on, and what is not confined", Args: cobra.NoArgs,
		Long: `Show the gateway with its live calls and sessions, the ledger, the cage that calls get, and what holds the
agents: confined, hooked, or able to walk around the gate. That is found out by trying. It is a look: it starts no
gateway, and leaves nothing behind but what a hook's answers are recorded as.`,
		PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			here, err := os.Getwd()
			if err != nil {
				return err
			}
			s, err := stopped(home, Walled), error(nil)
			if localapi.Inside() == "" {
				s, err = AskStatus(cmd.Context(), home, StatusPatience)
			}
			if err != nil && !errors.Is(err, localapi.ErrUnreachable) {
				return err
			}
			if err != nil {
				s = stopped(home, Walled)
			}
			s.Shims, _ = Shims(home) // the doctor reports why they cannot be read
			s.Agents = CheckAgents(cmd.Context(), s.Agents, here, s.Running, false)
			if err != nil && s.Agents[0].State != apitype.ConfinedState {
				return err
			}
			if a.JSON {
				return a.Print(s)
			}
			return s.WriteSummary(a.Stdout)
		},
	}
}

// StatusPatience limits how long the gateway may take to answer. It first verifies a segment of the ledger and builds
// cages.
const StatusPatience = 30 * time.Second

// AskStatus queries the running gateway. If no gateway is running, it returns the status from stopped.
func AskStatus(ctx context.Context, home localapi.Home, patience time.Duration) (apitype.Status, error) {
	var s apitype.Status
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := (&localapi.Client{Home: home}).Look(bounded, localapi.Query{Verb: "status"}, &s)
	switch {
	case errors.Is(err, localapi.ErrUnreachable) && nobodyListens(err):
		return stopped(home, noGateway), nil
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return s, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the gateway of %s does not answer within %v", home, patience),
			Hint: "see " + home.LogFile() + "; bailey gateway stop ends a gateway that still listens", Err: err}
	}
	return s, err
}
