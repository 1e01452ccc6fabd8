// Package policy decides calls: rules, the checked request and the manifests go in, a [bailey.Decision]
// comes out. It is pure: it opens nothing, asks nobody and keeps nothing between decisions.
//
// # Rules
//
// Rules are Cedar. Nothing is allowed unless a permit says so, a forbid beats every permit, order means
// nothing, and an error while any rule is evaluated denies the call. Annotations:
//
//	@id("main-needs-human")   mandatory, unique: lower case letters, digits, '.', '_' and '-'
//	@reason("…")              mandatory on a forbid: what the agent and the receipt are told
//	@approval("role=sre,level=signed-touch,count=1,ttl=10m")
//	                          makes a forbid an asking rule; role (default anyone), level of the answer
//	                          (local, signed-software or signed-touch; default any), count (1), ttl (10m)
//
// An asking rule carries `unless { context.approvals.contains("its-own-id") }`. context.approvals may
// stand nowhere else, so one more grant can only ever lift the rule that asked for it: a call is decided
// with the grants in hand and, if refused by asking rules alone, once more with theirs added. Allowed then
// is an ask.
//
// An irreversible action runs only by a permit whose action scope names that very action. A call whose input was
// given back secrets (context.restores holds their categories) runs only by a permit that looks at context.restores, one
// whose tool could reach the network only by a permit that looks at context.egress, and one whose cage holds less than that of
// other tools (context.waivers says what) only by a permit that looks at context.waivers.
//
// A rule has to mean the same wherever Cedar is read, so what Cedar's reference implementation reads differently is
// refused: ip(), decimal(), datetime() and duration(), of which no call holds a value; more than four of '!' or '-' in
// a row; a value compared with itself; containsAll and containsAny of agents, actions or targets. test/cedar holds the
// two against each other.
//
// # Model
//
//	principal  Agent::"<name>"   person String, organisation String, roles Set<String>
//	action     Action::"git.status", member of
//	           pack:<pack> · sideEffect:<class> · risk:<level> · reversibility:<class> · waives:<none, fs.exec, isolation> · home:<none, builds, fetches> · builtin
//	resource   Target::"local" or Target::"<kind>:<name>"   kind String, name String
//	context    input        record, see below
//	           paths        Set<String>, what the path inputs resolved to
//	           dir, cage, profile, environment   String, "" when there is none
//	           absent           Set<String>, layers that the cage lacks on this host
//	           changed          Bool, a program that others than root could write is not what it was
//	           session      {id String, unattended Bool}
//	           unattended   Bool
//	           writes       Bool, a path is open for writing, or the side-effect class is neither none nor
//	                        readOnly, or it runs without a cage
//	           restores     Set<String>, categories of the secrets that the input was given back
//	           egress       Set<String>, host:port of what the tool could reach
//	           waivers      Set<String>, what the tool's cage lacks because its manifest wants so: fs.exec; isolation, of
//	                        what runs without one
//	           time         {epoch Long (seconds), hour Long (0-23), weekday Long (0 is Sunday)}
//	           approvals    Set<String>, rules whose grants are in hand
//
// The groups of the classes always exist; pack groups exist for the packs that are loaded. A rule for many
// actions may use the inputs of some under `action in Action::"git.push" && …`; `==` does not serve, for
// the check of types takes no notice of it.
//
// # Input
//
// context.input is typed by the manifest's JSON Schema. Only the keyword "type" and what is listed count;
// further keywords narrow a value and change nothing here.
//
//	"type": "string"                            String
//	"type": "integer"                           Long, written as digits, within 64 bits
//	"type": "boolean"                           Bool
//	"type": "array", items string or integer    Set<String>, Set<Long> (order and repeats are lost)
//	"type": "object" with properties            record, to a depth of 8
//	anything else                               not mapped: number, null, several types, $ref, …
//
// A property in "required" is always there; any other wants a `has` first, or the rule does not load. A
// value that does not fit the type of its property denies the call. Names of inputs that are not mapped, or
// not in the schema, stand in context.input._opaque, a Set<String> of dotted names, and the built-in rule
// opaque-input asks for them; a forbid of one's own with @id("opaque-input") takes that rule's place. In the same
// way the built-in rule changed-tool asks while context.changed is true.
//
// # Time
//
// context.time.hour and weekday are those of the place where the gateway runs, for that is what people mean by night;
// [bailey.Request.Time] carries the zone, and the gate's own clock has the machine's. epoch is the same everywhere. A
// clock that is set back changes what rules about time say; what was granted ends by the approver's own count.
//
// # What does not load
//
// A policy loads whole or not at all. These are findings, each with its file and line:
//
//   - text that is no Cedar, that hides characters, or nests or grows beyond bounds
//   - an annotation that is missing, misspelled or twice there, an @id that is not unique
//   - an action, a group, an input, an attribute or a type of entity that is not there, and a type that does not fit
//   - a target that cannot be: there are "local", "host:NAME" and "sandbox:NAME"; an agent without a name
//   - a scope that takes in no call, a condition that is false for every call
//   - an optional input that is read without a `has` before it
//   - context.approvals anywhere but in its place
//   - a permit, or an asking rule, all of whose calls are denied by forbids without conditions: it allows nothing, or
//     no grant can lift it. A plain forbid under another is none: it still tells its reason
//
// For the last a scope counts as written: an action lies in its groups, a pack's group in forbids that take in all
// its actions; a group of a class waits for actions that are not there yet.
//
// # Tests
//
// Tests of rules stand beside them, in files of YAML. Unknown keys, keys given twice, values of another type, anchors
// and aliases are refused; a file is at most 1 MiB.
//
//	tests:
//	  - name: a push to main asks a person   # or else the call in words
//	    call: git.push                       # mandatory
//	    input: {repo: ., ref: main}          # as an agent would send it; nothing
//	    expect: ask                          # mandatory: allow, ask or deny
//	    rules: [main-needs-human]            # exactly those that decide; or else whichever do
//	    approvals: []                        # asking rules whose grants are in hand; none
//	    agent: local                         # local, as every agent is called in this version
//	    person: ada                          # nobody
//	    roles: [sre]                         # none
//	    organisation: acme                   # none
//	    target: local                        # local; or host:NAME, sandbox:NAME
//	    at: Saturday 23:30                   # Wednesday 12:00; or RFC 3339, whose hour is the one written
//	    cage: full                           # full
//	    absent: []                           # layers the cage lacks; none
//	    changed: false                       # false
//	    dir: /workspace                      # /workspace
//	    paths: {repo: /workspace}            # what the path inputs came to; nothing
//	    writes: true                         # what the manifest says
//	    restores: []                         # categories of secrets; none
//	    egress: [a.example:443]              # what the manifest says
//	    waivers: [fs.exec]                   # the same
//	    unattended: false                    # false
//	    environment: production              # none
//	    profile: work                        # none
//
// A test of an action, a grant or a rule that is not there fails whatever it expects.
//
// # What others are told
//
// The reasons of rules are for the agent; their text, their files and what would lift them are for the people who
// wrote them. [Explanation.ForAgent] keeps to the first. [Engine.Never] says what lists of capabilities may leave
// out, and [Compare] what a change of policy means for each capability.
package policy
