package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"bailey/internal/wire"

	"github.com/spf13/cobra"

	"bailey"
)

// callsSocket is the one socket that an agent inside the wall has, "" outside. The place tells, not a variable: nobody but root
// makes one there, and whatever says that this is inside would have an agent's hook believe it.
func callsSocket() string {
	if info, err := os.Lstat(wire.CallsSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
		return wire.CallsSocket
	}
	return ""
}

// insideVerbs are those that mean something inside the wall.
var insideVerbs = []string{"run", "serve", "capabilities", "search", "judge", "status", "help", "completion", "__complete", "__completeNoDesc"}

// forInside refuses every other verb there, before it touches anything.
func forInside(cmd *cobra.Command, _ []string) error {
	words := strings.Fields(cmd.CommandPath())
	if callsSocket() == "" || len(words) < 2 || slices.Contains(insideVerbs, words[1]) {
		return nil
	}
	return staysOutside(strings.Join(words[1:], " "))
}

func staysOutside(verb string) error {
	return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("bailey %s: operator verbs stay outside of the wall, and this is inside", verb),
		Hint: "inside there are bailey run, serve and capabilities; a person does the rest in a terminal of theirs"}
}
