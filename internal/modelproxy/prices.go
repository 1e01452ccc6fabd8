package modelproxy

import (
	"math"
	"strings"

	"bailey/internal/modelwire"
)

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	Model                                string // its name, or the beginning of names and *
	Input, Output, CacheRead, CacheWrite float64
}

// PricesAsOf is the month of the prices that Bailey has. They are those of the providers' public lists
// (platform.claude.com, developers.openai.com, ai.google.dev), as libraries and documents that quote these lists had them;
// they were not compared with the lists themselves. If sources differed, or a provider charges more for long prompts, the
// higher price stands here. A write to Anthropic's cache is priced as one that lasts five minutes, 1.25 times the input.
// Where no source had a price of cached tokens, it is that of the input, which is an upper bound.
const PricesAsOf = "2026-10"

// shippedPrices returns the prices that Bailey has. A name also stands for the same name with a date.
func shippedPrices() []Price {
	return []Price{
		{"claude-fable-5", 10, 50, 1, 12.5}, {"claude-mythos-5", 10, 50, 1, 12.5},
		{"claude-opus-5", 5, 25, .5, 6.25}, {"claude-opus-5-5", 4, 20, .2, 5},
		{"claude-opus-4-8", 5, 25, .5, 6.25}, {"claude-opus-4-7", 5, 25, .5, 6.25}, {"claude-opus-4-6", 5, 25, .5, 6.25},
		{"claude-opus-4-5", 5, 25, .5, 6.25}, {"claude-opus-4-1", 15, 75, 1.5, 18.75}, {"claude-opus-4", 15, 75, 1.5, 18.75},
		{"claude-sonnet-5", 3, 15, .3, 3.75}, {"claude-sonnet-5-5", 2, 10, .1, 2.5},
		{"claude-sonnet-4-6", 3, 15, .3, 3.75}, {"claude-sonnet-4-5", 3, 15, .3, 3.75}, {"claude-sonnet-4", 3, 15, .3, 3.75},
		{"claude-haiku-4-5", 1, 5, .1, 1.25}, {"claude-3-5-haiku", .8, 4, .08, 1},
		{"gpt-5.1", 1.25, 10, 1.25, 1.25}, {"gpt-5-mini", .25, 2, .025, .25},
		{"gpt-5-nano", .05, .4, .05, .05}, {"gpt-5.2", 1.75, 14, .175, 1.75}, {"gpt-5.2-codex", 1.75, 14, .175, 1.75},
		{"gpt-5.3-codex", 1.75, 14, .175, 1.75}, {"gpt-4.1", 2, 8, .5, 2}, {"gpt-4o", 2.5, 10, 2.5, 2.5},
		{"gpt-4o-mini", .15, .6, .15, .15},
		{"text-embedding-3-small", .02, 0, .02, .02}, {"text-embedding-3-large", .13, 0, .13, .13},
	}
}

// matchesModel reports whether the price is that of a model: of its name, with a date, or by the beginning of its name.
func (p Price) matchesModel(model string) bool {
	if start, ok := strings.CutSuffix(p.Model, "*"); ok {
		return strings.HasPrefix(model, start)
	}
	rest, ok := strings.CutPrefix(model, p.Model)
	if !ok || rest == "" || rest == "-latest" {
		return ok
	}
	digits := strings.NewReplacer("-", "", "@", "").Replace(rest)
	return len(digits) == len("20260131") && strings.Trim(digits, "0123456789") == "" && strings.ContainsAny(rest[:1], "-@")
}

// findPrice returns the price of a model. The prices of the settings come first.
func findPrice(own []Price, model string) (Price, bool) {
	model = strings.TrimPrefix(model, "models/")
	for _, list := range [][]Price{own, shippedPrices()} {
		best, found := Price{}, false
		for _, p := range list {
			if p.matchesModel(model) && (!found || len(p.Model) > len(best.Model)) {
				best, found = p, true
			}
		}
		if found {
			return best, true
		}
	}
	return Price{}, false
}

// priceOf returns the price of the model that was asked or that answered, if only one is known, or the higher of both. An
// unknown model costs as much as the dearest one, so that a budget cannot be evaded by a new name.
func priceOf(own []Price, asked, answered string) Price {
	var p Price
	found := false
	for _, model := range []string{asked, answered} {
		if one, ok := findPrice(own, model); ok && model != "" {
			p, found = p.raiseTo(one), true
		}
	}
	if !found {
		for _, one := range append(shippedPrices(), own...) {
			p = p.raiseTo(one)
		}
	}
	return p
}

// raiseTo returns the higher of two prices, for each kind of tokens.
func (p Price) raiseTo(o Price) Price {
	return Price{p.Model, max(p.Input, o.Input), max(p.Output, o.Output), max(p.CacheRead, o.CacheRead),
		max(p.CacheWrite, o.CacheWrite)}
}

// bytesPerToken is more than the tokens of any usual text have on average: prose has about 4 bytes, and code 3. Only long
// runs of white space have more. So texts have at least one token for each so many bytes.
const bytesPerToken = 16

// maxTokens limits the counts of a provider, so that sums cannot overflow.
const maxTokens = 1 << 40

// countUse sets the tokens and the price of an answer. The counts are those of the provider, but at least those that the
// texts must have, so that a provider which reports none, or a client that asks for no report, does not evade a budget.
func (x *exchange) countUse(u modelwire.Usage) {
	clip := func(n int64) int64 { return min(max(n, 0), maxTokens) }
	read, write := clip(u.CacheRead), clip(u.CacheWrite)
	in, out := max(clip(u.Input)-read-write, 0), clip(u.Output)
	switch x.endpoint.Operation {
	case modelwire.Generate, modelwire.Compact, modelwire.Embed:
		if least := x.sum.TextBytes/bytesPerToken - read - write; in < least {
			in, x.use.Estimated = least, true
		}
		if least := u.TextBytes / bytesPerToken; out < least {
			out, x.use.Estimated = least, true
		}
	case modelwire.CountTokens: // is free, and reports tokens of no request
		in, out, read, write = 0, 0, 0, 0
	}
	x.use.InputTokens, x.use.OutputTokens, x.use.CachedTokens = in, out, read+write
	p := priceOf(x.p.Prices(), x.sum.Model, u.Model)
	x.use.MicroUSD = int64(math.Ceil(float64(in)*p.Input + float64(out)*p.Output + float64(read)*p.CacheRead +
		float64(write)*p.CacheWrite))
}
