package modelproxy

import (
	"context"
	"maps"

	"bailey"
	"bailey/internal/modelwire"
)

// blockedPrompt stands in the history of a conversation for a prompt that a hook blocked.
const blockedPrompt = "(a hook of Bailey blocked this prompt)"

// Limits of the changed prompts of a session.
const (
	maxPrompts     = 10_000
	maxPromptBytes = 8 << 20 // of the prompts and what they became
)

// keptPrompts has what hooks made of prompts.
type keptPrompts struct {
	texts map[string]string
	bytes int
}

// askHooks passes a new prompt to the hooks of its event. If they refuse it, the call is made all the same and
// refused, so
// that it has a receipt. A client sends its history again with each request, in its own words, so what the hooks made
// of
// earlier prompts is put in their places each time.
func (x *exchange) askHooks(ctx context.Context, from bailey.Call) error {
	prompt, changed := x.sum.LastPrompt, ""
	if prompt != "" {
		if changed, x.refused = x.p.Prompt(ctx, from, prompt); x.refused != nil {
			changed = blockedPrompt
			for _, part := range x.sum.PromptParts { // a later turn sends them again
				if part != "" {
					x.p.keepPrompt(x.session, part, blockedPrompt) // if it does not fit, a later turn asks the hooks again
				}
			}
		}
		changed = x.p.Table(x.session).Prompt(changed) // a hook may add a secret
		if changed != prompt && !x.p.keepPrompt(x.session, prompt, changed) && x.refused == nil {
			x.refused = bailey.Denied.Errorf("start a new session",
				"hooks changed %d prompts of this session, or %d MiB of them, the maximum", maxPrompts, maxPromptBytes>>20)
		}
	}
	found, err := x.replacePrompts(prompt)
	if err == nil && changed != "" && changed != prompt && !found && x.refused == nil {
		x.refused = bailey.Denied.New("a hook changed the prompt, which has several parts",
			"change the hook: it can only block such a prompt")
	}
	return err
}

// replacePrompts puts what the hooks made of prompts into their places. It reports whether the newest one was replaced.
func (x *exchange) replacePrompts(newest string) (found bool, err error) {
	prompts := x.p.promptsOf(x.session)
	if len(prompts) == 0 {
		return false, nil
	}
	body, _, err := modelwire.Edit(x.endpoint, x.body, func(where modelwire.Where, text string) string {
		changed, ok := prompts[text]
		if !ok || where.Kind != modelwire.User {
			return text
		}
		found = found || text == newest
		return changed
	})
	if err != nil {
		return false, refuseWith(statusOfDecode(err), err)
	}
	x.body = body
	return found, nil
}

// keepPrompt records what hooks made of a prompt. It returns false if there are too many.
func (p *Proxy) keepPrompt(id bailey.SessionID, prompt, changed string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.prompts[id]
	if all == nil {
		all = &keptPrompts{texts: map[string]string{}}
		p.prompts[id] = all
	}
	earlier, known := all.texts[prompt]
	more := len(changed) - len(earlier)
	if !known {
		more += len(prompt)
	}
	if !known && len(all.texts) >= maxPrompts || all.bytes+more > maxPromptBytes {
		return false
	}
	all.texts[prompt] = changed
	all.bytes += more
	return true
}

// promptsOf returns what hooks made of the prompts of a session.
func (p *Proxy) promptsOf(id bailey.SessionID) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.prompts[id]; all != nil {
		return maps.Clone(all.texts)
	}
	return nil
}
