// Package policy decides calls. Its input is the rules, the checked request and the manifests; its output is a
// [bailey.Decision]. It is pure: it opens no file, asks no person and keeps no state between decisions.
//
// # Rules
//
// Rules are written in Cedar. A call is denied unless a permit allows it. A forbid overrides every permit, and the
// order of rules has no meaning. If the evaluation of any rule fails, the call is denied. Annotations:
//
//	@id("main-needs-human")   mandatory, unique: lower case letters, digits, '.', '_' and '-'
//	@reason("…")              mandatory on a forbid: the text for the agent and the receipt
//	@approval("role=sre,level=signed-touch,count=1,ttl=10m")
//	                          makes a forbid an asking rule; role (default anyone), level of the answer
//	                          (local, signed-software or signed-touch; default any), count (1), ttl (10m)
//
// An asking rule must contain `unless { context.approvals.contains("its-own-id") }`. context.approvals must not appear
// anywhere else, so a grant can lift only the rule that asked for it. A call is first decided with the existing grants.
// If only asking rules refuse it, it is decided again with their grants added. If the second decision allows the call,
// the result is an ask.
//
// For some calls, at least one permit that holds must satisfy a further condition. If the action is irreversible, the
// permit's action scope must name that very action. If secrets are restored into the input (context.restores has their
// categories), the permit must read context.restores. If the tool could reach the network, it must read context.egress.
// If the cage is weaker than that of other tools (context.waivers lists how), it must read context.waivers.
//
// A rule must mean the same to every Cedar implementation. Constructs that Cedar's reference implementation treats
// differently are therefore refused: ip(), decimal(), datetime() and duration(), of which no call has a value; more
// than four '!' or '-' in a row; the comparison of a value with itself; containsAll and containsAny of agents, actions
// or targets. test/cedar compares the two implementations.
//
// # Model
//
//	principal  Agent::"<name>"   person String, organisation String, roles Set<String>
//	action     Action::"git.status", member of
//	           pack:<pack> · sideEffect:<class> · risk:<level> · reversibility:<class> · waives:<none, fs.exec, isolation> · home:<none, builds, fetches> · builtin
//	resource   Target::"local" or Target::"<kind>:<name>"   kind String, name String
//	context    input        record, see below
//	           paths        Set<String>, the resolved path inputs
//	           dir, cage, profile, environment   String, "" if not set
//	           absent       Set<String>, layers that the cage lacks on this host
//	           changed      Bool, a program that users other than root can write differs from an earlier call
//	           session      {id String, unattended Bool}
//	           unattended   Bool
//	           writes       Bool, a path is open for writing, or the side-effect class is neither none nor
//	                        readOnly, or the call runs without a cage
//	           restores     Set<String>, categories of the secrets that are restored into the input
//	           egress       Set<String>, host:port of each endpoint that the tool could reach
//	           waivers      Set<String>, restrictions that the manifest removes from the cage: fs.exec, or isolation for
//	                        a tool that runs without a cage
//	           time         {epoch Long (seconds), hour Long (0-23), weekday Long (0 is Sunday)}
//	           approvals    Set<String>, rules that are granted
//
// The class groups always exist; a pack group exists if the pack is loaded. A rule for many actions may read an input
// that only some of them have after `action in Action::"git.push" && …`. `==` does not work there, because the type
// checker ignores it.
//
// # Input
//
// context.input is typed by the manifest's JSON Schema. Only the keyword "type" and the following forms count. Other
// keywords, for example enum, narrow a value and have no effect here.
//
//	"type": "string"                            String
//	"type": "integer"                           Long, written as digits, within 64 bits
//	"type": "boolean"                           Bool
//	"type": "array", items string or integer    Set<String>, Set<Long> (order and duplicates are lost)
//	"type": "object" with properties            record, to a depth of 8
//	anything else                               not mapped: number, null, several types, $ref, …
//
// A property in "required" is always present. A rule must test any other property with `has` first, or it does not
// load. If a value does not fit the type of its property, the call is denied. The names of inputs that are not mapped,
// or not in the schema, are in context.input._opaque, a Set<String> of dotted names. The built-in rule opaque-input
// asks if that set is not empty; a forbid with @id("opaque-input") in the policy replaces it. In the same way, the
// built-in rule changed-tool asks if context.changed is true.
//
// # Time
//
// context.time.hour and weekday are in the time zone of the gateway, because a word such as "night" means local time.
// [bailey.Request.Time] has the zone, and the clock of the gate uses that of the machine. epoch is the same everywhere.
// If the clock is set back, the result of time rules changes; the expiry of a grant does not, because the approver
// measures it separately.
//
// # Load errors
//
// A policy loads completely or not at all. These are findings, each reported with file and line:
//
//   - text that is not Cedar, that contains hidden characters, or that exceeds the limits of size or nesting
//   - an annotation that is missing, misspelled or repeated; an @id that is not unique
//   - an unknown action, group, input, attribute or entity type; a type that does not fit
//   - an impossible target: the valid forms are "local", "host:NAME" and "sandbox:NAME"; an agent without a name
//   - a scope that covers no call; a condition that is false for every call
//   - an optional input that is read without a `has` before it
//   - context.approvals in any other place
//   - a permit or an asking rule if unconditional forbids deny all its calls: the permit allows no call, or no grant
//     can lift the asking rule. A plain forbid under another forbid is not a finding: its reason is still reported
//
// For the last finding, scopes count as written. A forbid that covers a group covers its actions. A pack group is also
// covered if all its actions are. A class group is not, because more actions may join it later.
//
// # Tests
//
// Rule tests are YAML files next to the rules. Unknown keys, repeated keys, values of another type, anchors and aliases
// are refused. A file has at most 1 MiB. The comment on an optional key gives its default.
//
//	tests:
//	  - name: a push to main asks a person   # the call as text
//	    call: git.push                       # mandatory
//	    input: {repo: ., ref: main}          # as an agent would send it; empty
//	    expect: ask                          # mandatory: allow, ask or deny
//	    rules: [main-needs-human]            # exactly the rules that decide; any
//	    approvals: []                        # asking rules that are granted; none
//	    agent: local                         # local, the name of every agent in this version
//	    person: ada                          # none
//	    roles: [sre]                         # none
//	    organisation: acme                   # none
//	    target: local                        # local; or host:NAME, sandbox:NAME
//	    at: Saturday 23:30                   # Wednesday 12:00; or RFC 3339, whose hour counts as written
//	    cage: full                           # full
//	    absent: []                           # layers that the cage lacks; none
//	    changed: false                       # false
//	    dir: /workspace                      # /workspace
//	    paths: {repo: /workspace}            # the resolved path inputs; empty
//	    writes: true                         # according to the manifest
//	    restores: []                         # categories of secrets; none
//	    egress: [a.example:443]              # according to the manifest
//	    waivers: [fs.exec]                   # according to the manifest
//	    unattended: false                    # false
//	    environment: production              # none
//	    profile: work                        # none
//
// A test that names an unknown action, grant or rule fails, whatever it expects.
//
// # Visibility
//
// Agents may see the reasons of rules. The text and files of rules, and how to lift them, are for their authors.
// [Engine.Never] reports which capabilities a list may omit.
//
// # Review
//
// Package policy/review has what operators examine rules with: explanations of decisions (of which ForAgent keeps only
// the agent's part), the effect of a policy change on each capability, rule tests, and rules derived from past calls.
package policy
