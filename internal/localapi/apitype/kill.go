package apitype

import (
	"time"

	"bailey/internal/terminal"
)

// Verbs of the kill switch. Only the command line, with its terminal UI, has it. This is a separate channel: no
// interface for agents has it. Every user may stop calls; only an operator may resume them.
const KillVerb, ResumeVerb = "kill", "resume"

// KilledQuery is the query for processes that must end when the kill switch is set.
const KilledQuery = "killed"

// MaxKillReason limits a reason, in bytes. It becomes part of every refusal and its receipt.
const MaxKillReason = 400

func KilledText(k Killed) string {
	words := "everything is stopped since " + k.At.Format(time.RFC3339)
	if k.Person != "" {
		words += " by " + terminal.TableCell(k.Person)
	}
	if k.Reason != "" {
		words += ": " + terminal.TableCell(k.Reason)
	}
	return words + "; bailey resume carries calls again"
}
