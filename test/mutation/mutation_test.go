// Package mutation breaks one line of the gate at a time and checks that a test notices. Without such a test, an
// invariant is not guaranteed. The broken file is an overlay (go test -overlay); nothing on disk changes.
package mutation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/test/since"
)

// mutations lists changes that break one invariant each. The old text must occur in the file exactly once.
var mutations = []struct {
	law, file, old, new string
	tests               string // the package whose tests must fail
}{
	{"the intent is written before anything else", "internal/gate/gate.go",
		"	if err != nil {\n		return c.unrecordedResult(err)\n	}", "	if err != nil {\n		seal = func(bailey.Outcome) error { return nil }\n	}", "./internal/gate"},
	{"a remote that has another address now stops the call", "internal/gate/places.go",
		"	if err == nil && plainJSON(now) == plainJSON(c.input) {", "	if _, _ = now, err; true {", "./internal/gate"},
	{"the address of a remote is known before policy decides", "internal/gate/course.go",
		"	if c.input, err = c.resolveRemote(c.input); err != nil {", "	if _, err = c.resolveRemote(c.input); err != nil {", "./internal/gate"},
	{"a caller cannot state the address of a remote", "pack/remote.go",
		"if had, given := input[name]; given && ", "if had, given := input[name]; given && name == \"\" && ", "./pack"},
	{"a credential for an address goes nowhere else", "internal/egress/inject.go",
		" && s.isBelow(g.target.String(), r.URL)", "", "./internal/egress"},
	{"more rights than were asked for are not lent", "internal/broker/github.go",
		"	if wider := g.widerThanAsked(got); wider != \"\" {", "	if false {\n		wider := \"\"", "./internal/broker"},
	{"what revokes a credential is on the disk before its loan", "internal/broker/lend.go",
		"		if m.Handle != nil {", "		if false {", "./internal/broker"},
	{"a namespace that the table does not list gets no token", "internal/broker/narrow.go",
		"	if !slices.Contains(k.namespaces, space) {", "	if false {", "./internal/broker"},
	{"a helper runs with the digest of the table alone", "internal/broker/helper/helper.go",
		"cage.BinaryDigest != job.Digest", "false", "./internal/broker/helper"},
	{"a token is for the repository that the call names", "internal/broker/narrow.go",
		"				less.repositories, less.wanted = append(less.repositories, known), append(less.wanted, name)", "				less.repositories, less.wanted = g.repositories, append(less.wanted, name)", "./internal/broker"},
	{"keys that sign are not in the cage", "pack/egress.go",
		"		p.Credentials = sigv4.Credentials{ID: in.Placeholder, Secret: \"signed-outside-the-cage\"}", "		p.Credentials.ID = in.Placeholder", "./internal/gate"},
	{"a signature is made for the id of the placeholder alone", "internal/egress/sign.go",
		" || made.ID != s.Placeholder", "", "./internal/egress"},
	{"a configuration that rewrites addresses is refused", "internal/gitremote/resolve.go",
		"		return \"rewrites addresses\"", "		return \"\"", "./internal/gitremote"},
	{"a token's scope bounds each call", "internal/gateway/agents.go",
		"	if !t.Covers(id) {", "	if false {", "./internal/gateway"},
	{"a token that has ended lets nothing through", "internal/gateway/agents.go",
		"	if err := a.checkExpiry(t); err != nil {\n		return err\n	}\n	if !t.Covers", "	if !t.Covers", "./internal/gateway"},
	{"another agent's token is none", "internal/gateway/agents.go",
		`if t.ID == "" || t.Agent != p.Agent {`, `if t.ID == "" {`, "./internal/gateway"},
	{"a session of HTTP is its token's own", "internal/mcp/seats.go",
		"t != nil && t.token == token {", "t != nil {", "./internal/mcp"},
	{"a name that leads here is not the door's", "internal/mcp/http.go",
		"	if !has(f.Hosts, r.Host) {", "	if false {", "./internal/mcp"},
	{"a page of another origin may not ask", "internal/mcp/http.go",
		"(len(origins) != 1 || !has(f.Origins, origins[0]))", "len(origins) > 99", "./internal/mcp"},
	{"every exit is sealed", "internal/gate/gate.go",
		"	defer func() { res = c.sealReceipt(seal, recover()) }()", "	_ = seal\n	defer func() { res = c.buildResult(c.buildOutcome()) }()", "./internal/gate"},
	{"a panic is sealed too", "internal/gate/gate.go",
		"res = c.sealReceipt(seal, recover())", "res = c.sealReceipt(seal, nil)", "./internal/gate"},
	{"a stage that says no ends the line", "internal/gate/gate.go",
		"			return c.failWith(err)", "			c.failWith(err)", "./internal/gate"},
	{"a stage that leaves without an answer is no success", "internal/gate/receipt.go",
		"case c.err == nil && !c.finished:", "case false:", "./internal/gate"},
	{"a result that is not durable does not leave", "internal/gate/receipt.go",
		"		return c.notDurable(err)", "		_ = err", "./internal/gate"},
	{"the zero decision denies", "bailey.go",
		"	Deny  Effect = iota // refused\n", "	Open  Effect = iota\n	Deny\n", "./internal/gate"},
	{"hooks only tighten", "bailey.go",
		"return min(e, o)", "return max(e, o)", "./internal/gate"},
	{"what a hook changed is checked and decided again", "internal/gate/course.go",
		"	if !c.changed {", "	if true {", "./internal/gate"},
	{"a parked call asks no hook twice", "internal/gate/question.go",
		"c.Approver.Parked(of); ok {", "c.Approver.Parked(of); ok && h.Of == \"\" {", "./internal/gate"},
	{"what was heard is of one session's call", "internal/gate/question.go",
		"edition, c.cameFrom(), c.call", "edition, c.call", "./internal/gate"},
	{"a question without its grant is a no", "internal/gate/course.go",
		"		if !slices.Contains(c.granted, rule.ID) {", "		if false {", "./internal/gate"},
	{"a grant is of the rule as it read", "bailey.go",
		"r.ID == o.ID && r.Digest == o.Digest", "r.ID == o.ID", "./internal/gate"},
	{"one policy decides with the grant and without", "internal/gate/course.go",
		"d.Policy != policy", "policy == \"-\"", "./internal/gate"},
	{"an answer is to the text of its question", "internal/approve/answer.go",
		"case g.Digest != e.q.Digest:", "case false:", "./internal/approve"},
	{"an answer at the expiry is too late", "internal/approve/answer.go",
		"case hasPassed(u.c.Now(), e.q.Expires):", "case false:", "./internal/approve"},
	{"a grant is a role's", "internal/approve/answer.go",
		"		if !slices.Contains(by.Roles, role) {", "		if false {", "./internal/approve"},
	{"a name counts once", "internal/approve/answer.go",
		"func(o Event) bool { return o.Name == by.Name }", "func(o Event) bool { return false }", "./internal/approve"},
	{"nobody is a quorum without keys", "internal/approve/answer.go",
		"by.Level == bailey.Local && w.Count > 1", "w.Count > 99", "./internal/approve"},
	{"an answer is of the level that is wanted", "internal/approve/answer.go",
		"case !by.Level.Meets(w.Level):", "case false:", "./internal/approve"},
	{"whoever is no approver any more counts no longer", "internal/approve/answer.go",
		"err == nil && by.Name == t.Name && ", "(err == nil || t.Name != \"\") && ", "./internal/approve"},
	{"a grant that is not recorded grants nothing", "internal/approve/answer.go",
		"if err := u.c.Note(context.WithoutCancel(ctx), AnswerEvent, event); err != nil {", "if u.c.Note(context.WithoutCancel(ctx), AnswerEvent, event); false {\n		var err error", "./internal/approve"},
	{"the use of a grant is recorded before the call goes on", "internal/approve/stay.go",
		"if err := u.c.Note(context.WithoutCancel(ctx), UseEvent, use); err != nil {", "if err := ctx.Err(); use.At.IsZero() && err != nil {", "./internal/approve"},
	{"a grant is used once", "internal/approve/stay.go",
		"	e.used = true\n	u.removeEntry(e, \"\")\n", "", "./internal/approve"},
	{"a grant lapses", "internal/approve/stay.go",
		"cmp.Or(u.lapseReason(e), u.mismatchReason(e, q))", "cmp.Or(u.mismatchReason(e, q))", "./internal/approve"},
	{"an answer is to the call that takes it up", "internal/approve/stay.go",
		"if approvaltext.Text(q, u.c.Key) != e.q.Text {", "if false {", "./internal/approve"},
	{"a name counts once, whatever the ledger says", "internal/approve/answer.go",
		" && !slices.Contains(names, by.Name) {", " {", "./internal/approve"},
	{"a grant counts for what it covers", "internal/approve/answer.go",
		"ok && u.coversQuestion(g, e.q) && u.isGrantValid(g) {", "ok && u.isGrantValid(g) {", "./internal/approve"},
	{"a clock that stood still makes nothing longer", "internal/approve/approve.go",
		"return !now.Before(t) || !now.Round(0).Before(t.Round(0))", "return !now.Before(t)", "./internal/approve"},
	{"what is asked anew has its values", "internal/approve/approve.go",
		"	q = cloneQuestion(q) // the caller's", "	// the caller's", "./internal/approve"},
	{"a question is about one session's call", "internal/approvaltext/text.go",
		"	subject = questionMAC(q, key)\n	q.Session = \"\"", "	q.Session = \"\"\n	subject = questionMAC(q, key)", "./internal/approve"},
	{"what a person denied stays denied", "internal/approve/approve.go",
		"if a, ok := u.recentDenial(q); ok {", "if a, ok := u.recentDenial(q); ok && a.Pending {", "./internal/approve"},
	{"a grant that stands is for its rules as they read", "internal/approve/grant.go",
		"o.ID == r.ID && o.Digest == r.Digest", "o.ID == r.ID", "./internal/approve"},
	{"a grant that stands is its giver's, who may still give it", "internal/approve/grant.go",
		"if u.coversQuestion(s, q) && u.isGrantValid(s) {", "if u.coversQuestion(s, q) {", "./internal/approve"},
	{"what cannot be undone is asked about each time", "internal/approve/grant.go",
		"case strings.Contains(q.Impact+\", \", \", irreversible, \"):", "case false:", "./internal/approve"},
	{"a text has one form", "internal/approvaltext/parse.go",
		"if write(w); w.String() != text {", "if write(w); w.String() == \"\" {", "./internal/approvaltext"},
	{"the values are not kept with the question", "internal/approve/approve.go",
		"	clearValues(&q)\n", "", "./internal/approve"},
	{"a line of a text ends where it should", "internal/approvaltext/text.go",
		"case r >= 0x20 && r <= 0x7e:", "case r >= 0x0a && r <= 0x7e:", "./internal/approvaltext"},
	{"the policy of now decides after the answer", "internal/gate/course.go",
		"	d := c.Policy.Decide(c.policyRequest())\n", "	d := bailey.Decision{Effect: bailey.Allow}\n", "./internal/gate"},
	{"an answer to a workflow holds for a step as it was shown", "internal/gate/chain.go",
		"w.Subject != c.subjectDigest() || ", "", "./internal/gate"},
	{"an answer to a workflow lifts the rules that it was about", "internal/gate/chain.go",
		"if !slices.ContainsFunc(w.Granted, rule.Same) {", "if false {", "./internal/gate"},
	{"a workflow is no milder than its steps", "internal/gate/chain.go",
		"if what := ch.manifest.Milder(m); what != \"\" {", "if what := ch.manifest.Milder(m); what == \"?\" {", "./internal/gate"},
	{"a change is recorded before it is in force", "internal/applied/applied.go",
		"	if err := record(); err != nil {\n		return err\n	}\n	s.replaceWith(next)\n	return nil\n", "	s.replaceWith(next)\n	return record()\n", "./internal/applied"},
	{"a profile whose file is gone closes the gate", "internal/gateway/profiles.go",
		"		if err != nil && s.Failed == nil {\n", "		if err == bailey.Internal {\n", "./internal/gateway"},
	{"a new question at the last decision is a no", "internal/gate/course.go",
		"		d.Effect = bailey.Deny\n", "", "./internal/gate"},
	{"a call that no budget has room for does not run", "internal/gate/course.go",
		"	a, err := c.Budgets.Take(c.policyRequest())\n	if err != nil {", "	a, err := c.Budgets.Take(c.policyRequest())\n	if false {", "./internal/gate"},
	{"what a call used is counted", "internal/gate/course.go",
		"	c.allowed.Settle(c.resourcesUsed())\n", "", "./internal/gate"},
	{"the kill switch ends what runs", "internal/gateway/kill.go",
		"		(*cancel)(cut)\n", "		_, _ = cancel, cut\n", "./internal/gateway"},
	{"the kill switch refuses what comes", "internal/gateway/kill.go",
		"	if !killed.On() {\n		return d", "	if true {\n		return d", "./internal/gateway"},
	{"there is no nil runner", "internal/gate/gate.go",
		"		if r == nil {", "		if r == nil && false {", "./internal/gate"},
	{"a dry run acts on nothing", "internal/gate/gate.go",
		"		if stage.acts && call.DryRun {", "		if false {", "./internal/gate"},
	{"what was opened is what policy sees", "internal/gate/course.go",
		"		r.Paths[p.Input] = p.Path", "		r.Paths[p.Input] = \"\"", "./internal/gate"},
	{"output is redacted", "internal/gate/capture.go",
		"	if _, err := p.redact.Write(b); err != nil {", "	if _, err := p.limit.Write(b); err != nil {", "./internal/gate"},
	{"what a hook returns is redacted again", "internal/gate/capture.go",
		"	is = c.Redactor.Again(c.call.Session.ID, is)\n", "", "./internal/gate"},
	{"a failure is no way around the hooks", "internal/gate/course.go",
		"	if c.executed {\n		c.failed, err = err, nil\n", "	if err == nil {\n		c.failed = nil\n", "./internal/gate"},
	{"what an agent does by itself no hook changes", "internal/gate/course.go",
		"	case c.call.Own: // the agent", "	case false: // the agent", "./internal/gate"},
	{"what hooks did not let go is withheld", "internal/gate/course.go",
		"	c.stdout.kept, c.stderr.kept = nil, nil\n", "", "./internal/gate"},
	{"output waits for the hooks that see it", "internal/gate/course.go",
		"c.Hooks.Holds(c.call.Capability); c.held {", "c.Hooks.Holds(c.call.Capability); false {", "./internal/gate"},
	{"the intent is redacted", "internal/gate/receipt.go",
		"inlineJSON(c.Redactor.Input(c.call.Session.ID, c.call.Input))", "inlineJSON(c.call.Input)", "./internal/gate"},
	{"a plan that holds a secret is withheld", "internal/gate/receipt.go",
		"		cage.Plan = \"\"\n", "", "./internal/gate"},
	{"what a manifest requires is there", "internal/gate/places.go",
		"		if !has {", "		if !has && err != nil {", "./internal/gate"},
	{"what is frozen is what is read", "internal/gate/places.go",
		"		case p.Frozen != nil:", "		case false:", "./internal/gate"},
	{"an output that was cut is not judged", "internal/gate/places.go",
		"	case c.stdout.cut:", "	case false:", "./internal/gate"},
	{"what is structured is redacted", "internal/gate/places.go",
		"!bytes.Equal(again, raw)", "bytes.Equal(again, nil)", "./internal/gate"},
	{"what no cage shows no tool reads", "internal/workspace/workspace.go",
		"	if err == nil && in.File {", "	if false {", "./internal/workspace"},
	{"no call has a terminal", "internal/gate/course.go",
		"	c.job.Session, c.job.Principal = c.call.Session.ID, c.call.Principal\n",
		"	c.job.Session, c.job.Principal, c.job.TTY = c.call.Session.ID, c.call.Principal, true\n", "./internal/gate"},
	{"leased values are learnt before the run", "internal/gate/course.go",
		"	c.Redactor.Learn(c.call.Session.ID, lease.Secrets)\n", "", "./internal/gate"},
	{"a lease ends with its call", "internal/gate/course.go",
		"	c.lease.Return()\n", "", "./internal/gate"},
	{"what was shown is what happens", "internal/gate/preview.go",
		"sha256.Sum256([]byte(whole)) == c.seen", "whole != \"-\"", "./internal/gate"},
	{"what cannot be shown is not asked", "internal/gate/preview.go",
		"	case exit.Code != 0:", "	case false:", "./internal/gate"},
	{"what was shown is what is passed", "internal/gate/preview.go",
		"	if c.argv, err = c.manifest.Bind(", "	if _, err = c.manifest.Bind(", "./internal/gate"},
	{"a preview is lent nothing", "pack/preview.go",
		"j.EnvNames, j.FileNames, j.Timeout = nil, nil, p.Timeout", "j.Timeout = p.Timeout", "./pack"},
	{"a preview writes nowhere", "pack/preview.go",
		"		seen[i].Write = false\n", "		_ = i\n", "./pack"},
	{"a file is kept before it is asked about", "internal/gate/places.go",
		"		p.Frozen = f\n", "", "./internal/gate"},
	{"a file that is kept is nobody's to change", "internal/workspace/workspace_linux.go",
		"unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL", "unix.F_SEAL_SEAL", "./internal/workspace"},
	{"a text is of the call it was answered for", "internal/broker/verify.go",
		"case string(q.Call) != a.Capability:", "case false:", "./internal/broker"},
	{"an answer is used in its time", "internal/broker/verify.go",
		"case !now.Before(q.Until):", "case false:", "./internal/broker"},
	{"what is lent stands in the text as in the table", "internal/broker/verify.go",
		"if l.Adapter != e.Adapter || l.Scope != e.Scope || l.TTL != e.TTL {", "if l.Adapter != e.Adapter {", "./internal/broker"},
	{"a lease is of the level that its table wants", "internal/broker/verify.go",
		"s.level.Meets(a.Level) && hasRoles", "hasRoles", "./internal/broker"},
	{"who answers for a lease holds its roles", "internal/broker/verify.go",
		" && hasRoles(s.roles, a.Roles)", "", "./internal/broker"},
	{"one person is one signature", "internal/broker/verify.go",
		"!slices.Contains(people, s.name)", "!slices.Contains(people, s.key)", "./internal/broker"},
	{"an answer is lent for once", "internal/broker/journal.go",
		"if j.used[text] || j.used[nonce] {", "if j.used[nonce] && nonce == \"\" {", "./internal/broker"},
	{"a nonce is lent for once", "internal/broker/journal.go",
		"if j.used[text] || j.used[nonce] {", "if j.used[text] {", "./internal/broker"},
	{"a loan is on the disk before its values leave", "internal/broker/lend.go",
		"= s.journal.appendEvent(e, true)", "= s.journal.appendEvent(e, false)", "./internal/broker"},
	{"what the journal does not take is not lent", "internal/broker/lend.go",
		"\t\tclearValues(values)\n\t\treturn nil, nil, err\n\t}\n\treturn made.lentAnswer()", "\t}\n\treturn made.lentAnswer()", "./internal/broker"},
	{"whoever is not admitted borrows nothing", "internal/broker/server.go",
		"\tif slices.Contains(t.Admitted, uid) {", "\tif true {", "./internal/broker"},
	{"a table is used as it was applied", "internal/broker/server.go",
		"if t.Digest != last.Digest {", "if false {", "./internal/broker"},
	{"a loan ends with its connection", "internal/broker/server.go",
		"defer func() { l.endLoan(why) }()", "_ = why", "./internal/broker"},
	{"a panic shows no value", "internal/broker/server.go",
		"fmt.Sprintf(\"%T\", p)", "fmt.Sprint(p)", "./internal/broker"},
	{"a listener is whose it should be", "internal/peer/peer.go",
		"if err == nil && uid != want {", "if false {", "./internal/peer"},
	{"a lease says whether it wants an answer", "internal/broker/table.go",
		"case !approval:", "case !approval && e.Adapter == \"\":", "./internal/broker"},
	{"a key of a message stands in it once", "internal/broker/wire.go",
		" || open[len(open)-1][t] {", " {", "./internal/broker"},
	{"a broker has its directory alone", "internal/broker/own_unix.go",
		"syscall.LOCK_EX|syscall.LOCK_NB", "syscall.LOCK_SH|syscall.LOCK_NB", "./internal/broker"},
	{"a log's key signs nothing smaller", "internal/broker/logkey.go",
		"case t.size < k.size:", "case false:", "./internal/broker"},
	{"a log's key signs no fork", "internal/broker/logkey.go",
		"case t.size == k.size && t.root != k.root:", "case false:", "./internal/broker"},
	{"a log's key signs for one log", "internal/broker/logkey.go",
		"case k.origin != \"\" && k.origin != t.origin:", "case false:", "./internal/broker"},
	{"a log's key signs for who had it made", "internal/broker/logkey.go",
		" || k.uid != l.UID {", " {", "./internal/broker"},
	{"a signature is on the disk before it leaves", "internal/broker/logkey.go",
		"journal.appendEvent(e, true); err != nil {\n\t\treturn r, err", "journal.appendEvent(e, false); err != nil {\n\t\treturn r, err", "./internal/broker"},
	{"a log's key signs the texts of a log alone", "internal/broker/logkey.go",
		"return c, text == fmt.Sprintf(\"%s\\n%d\\n%s\\n\", c.origin, c.size, c.root)", "return c, true", "./internal/broker"},
	{"an address is given back only where it says whom to ask", "internal/redact/restore.go",
		"	return 0, 0\n}\n\n// wholeHostToken returns", "	return 0, len(s)\n}\n\n// wholeHostToken returns", "./internal/redact"},
	{"what was given back is hidden from then on", "internal/redact/restore.go",
		"	t.learnLocked(c, text)\n	return true", "	return true", "./internal/redact"},
	{"no rule gives a secret back by accident", "internal/policy/decide.go",
		"len(w.restores) > 0 && !e.isAttributeRead(held, \"restores\")", "false", "./internal/policy"},
	{"no rule lets anything out by accident", "internal/policy/decide.go",
		"len(w.egress) > 0 && !e.isAttributeRead(held, \"egress\")", "false", "./internal/policy"},
	{"no rule lets a cage go by accident", "internal/policy/decide.go",
		"len(w.waivers) > 0 && !e.isAttributeRead(held, \"waivers\")", "false", "./internal/policy"},
	{"what runs without a cage waives it", "pack/exec.go",
		"	if m.Uncaged() {\n", "	if m.Uncaged() && false {\n", "./pack"},
	{"what runs without a cage shows nothing before it may", "pack/cage.go",
		"	if at.preview != nil {", "	if false {", "./pack"},
	{"what is injected stays outside", "internal/gate/way.go",
		"		c.lease.Env[i] = w.Env + \"=\" + w.Inject.Shown(in.Placeholder)\n", "", "./internal/gate"},
	{"whoever is asked is told where a credential goes", "internal/gate/course.go",
		"		c.scopes[i].Inject = wants[i].Inject\n", "		_ = i\n", "./internal/gate"},
	{"what is told of the outside is redacted", "internal/gate/way.go",
		"clipText(c.redactMessage(*s), maxWords)", "clipText(*s, maxWords)", "./internal/gate"},
	{"a path stays in the workspace", "internal/workspace/workspace.go",
		"	case !b.Hold(real):", "	case false:", "./internal/workspace"},
	{"the workspace is fixed at the first call", "internal/workspace/workspace.go",
		"	w.roots[call.Session.ID] = root\n", "", "./internal/workspace"},
	{"a caller that goes away ends its call", "internal/gateway/serve.go",
		"	conn.ReadFrame()\n	cancel(callerGone)\n", "	conn.ReadFrame()\n", "./internal/gateway"},
	{"a socket others could replace is refused", "internal/peer/peer.go",
		"	if err := Owned(filepath.Dir(path)); err != nil {", "	if err := Owned(filepath.Dir(path)); err != nil && false {", "./internal/peer"},
	{"an agent inside the wall says no operator verb", "internal/gateway/inner.go",
		"	if !slices.Contains(innerVerbs, q.Verb) {", "	if !slices.Contains(innerVerbs, \"call\") {", "./internal/gateway"},
	{"what appears in a guarded place is put away", "internal/wrap/run.go",
		"New(r.Before, now.Paths)", "New(now.Paths, now.Paths)", "./internal/wrap"},
	{"what is guarded and is not as it was is told", "internal/wrap/guard.go",
		"		if now[path] != was {", "		if now[path] == \"\" && was == \"\" {", "./internal/wrap"},
}

// TestTableIsDocumented checks that the table in docs/threat-model.md contains every row of mutations.
func TestTableIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		row := "| " + m.law + " | `" + m.file + "` | `" + strings.TrimPrefix(m.tests, "./") + "` |"
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/threat-model.md lacks the row %s", row)
		}
	}
}

// TestTextsStandOnce checks that every row can be applied, whether or not it is due.
func TestTextsStandOnce(t *testing.T) {
	for _, m := range mutations {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if n := strings.Count(string(text), m.old); err != nil || n != 1 {
			t.Errorf("%s: %q stands %d times in %s, want once; %v", m.law, m.old, n, m.file, err)
		}
	}
}

// table is the name of this file.
const table = "test/mutation/mutation_test.go"

// TestMutations takes long, because each row compiles its packages again. A row runs if its file, a test that could
// notice, or the row itself changed since .ci/full passed.
func TestMutations(t *testing.T) {
	changes := since.Require(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, m := range mutations {
		if !changes.File(m.file) && !changes.Tests(strings.TrimPrefix(m.tests, "./")) && !changes.New(table, m.law) {
			left++
			continue
		}
		t.Run(m.law, func(t *testing.T) {
			t.Parallel() // tests that notice by waiting can wait concurrently
			out, err := withMutation(t, root, m.file, m.old, m.new, m.tests)
			if err == nil {
				t.Fatalf("%s was broken and no test in %s noticed", m.file, m.tests)
			}
			if !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:") {
				t.Fatalf("the tests did not run: %s", out)
			}
		})
	}
	since.LeftOut(t, left, len(mutations))
}

func withMutation(t *testing.T, root, file, old, new, tests string) (string, error) {
	t.Helper()
	path := filepath.Join(root, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%q stands %d times in %s, want once", old, n, file)
	}
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.go")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout", "60s", "-failfast", "-ldflags=-s -w", "-overlay", list, tests)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
