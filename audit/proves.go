package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Proves returns the facts that a report with OK proves, as sentences without repetition.
func (r Report) Proves() []string {
	said := []string{fmt.Sprintf("the order of its %d entries, and that none was changed, taken out or put in without everything after it being written anew", r.Entries)}
	for _, s := range r.Held {
		from := r.checkpointFiles(func(o Signed) bool { return o.Checkpoint == s.Checkpoint && slices.Contains(o.Keys, s.Keys[0]) })
		said = append(said, fmt.Sprintf("its first %d entries are those that the key %s signed%s", s.Size, s.Keys[0], from))
		for _, c := range s.Cosignatures {
			from := r.checkpointFiles(func(o Signed) bool { return o.Checkpoint == s.Checkpoint && slices.Contains(o.Cosignatures, c) })
			said = append(said,
				fmt.Sprintf("%s had cosigned no other history of this log, and none longer, by %s%s", c.Witness,
					c.Time.Format(time.RFC3339), from))
		}
	}
	var once []string
	for _, s := range said {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// checkpointFiles returns a phrase with the files of the checkpoints for which says is true.
func (r Report) checkpointFiles(says func(Signed) bool) string {
	var files []string
	for _, s := range r.Held {
		if says(s) && s.From != "" && !slices.Contains(files, s.From) {
			files = append(files, s.From)
		}
	}
	if len(files) == 0 {
		return ""
	}
	return " (checkpoint " + strings.Join(files, " and ") + ")"
}

// LeavesOpen returns the facts that the report does not prove, as sentences.
func (r Report) LeavesOpen() []string {
	var said []string
	signed, witnessed := uint64(0), uint64(0)
	for _, s := range r.Held {
		signed = max(signed, s.Size)
		if len(s.Cosignatures) > 0 {
			witnessed = max(witnessed, s.Size)
		}
	}
	if signed < r.Entries {
		said = append(said, fmt.Sprintf("the entries from %d on are held against no signature: whoever can write the files can write others that verify, or cut them off", signed+1))
	}
	switch {
	case r.witnesses == 0:
		said = append(said, "no witness was named: whoever has the log's key can sign other entries in the place of these")
	case witnessed < r.Entries:
		said = append(said, fmt.Sprintf("the entries from %d on have no witness that was named: whoever has the log's key can sign others in their place", witnessed+1))
	}
	return append(said,
		"bodies kept in blobs/ were not looked at: one may be missing or changed",
		"the times in it are the writer's clock; its order is the numbers'",
		"what did not pass the gate is not in it, and what is in it is what the gate said")
}
