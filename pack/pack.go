// Package pack reads capability manifests: it parses a pack's YAML, checks a caller's arguments
// against the capability's schema and renders the argv that a runner executes.
//
// Everything fails closed. A key nobody knows, a schema keyword nobody checks, a field that this
// version cannot honour: each refuses the whole pack, with file, line and column. What a manifest
// promises is therefore what happens.
//
// # Manifest
//
// A pack is one file, pack.yaml, in camelCase:
//
//	name: git
//	version: 1.0.0
//	description: looking at git repositories
//	capabilities:
//	  - name: log                       # the id is git.log; only built-in packs may write a full id
//	    description: show the history
//	    backend: {type: subprocess, command: git, args: [log, "--max-count={{ input.limit | default: \"20\" }}"], cwdFromInput: repo}
//	    risk: low                       # low, medium, high, critical
//	    sideEffectClass: readOnly       # none, readOnly, additive, mutating, destructive
//	    reversibility: readOnly         # readOnly, reversible, externallyReversible, irreversible
//	    isolation: jail
//	    sandboxProfile: {fs: {ro: [/usr/share/zoneinfo]}, limits: {memoryMiB: 256, tasks: 16}}
//	    inputSchema: {type: object, properties: {repo: {type: string, format: path}, limit: {type: integer}}, required: [repo]}
//	    timeout: 30s                    # from 1ms to 24h; 10m unless said
//	    docs: https://git-scm.com/docs/git-log
//
// Published manifests use other spellings, which mean the same; both of one at once is an error:
//
//	argv_pattern cwd_from_input input_schema memory_mib output_schema sandbox_profile side_effect_class
//	read_only, readonly                 readOnly
//	write_remote                        mutating
//	externally_reversible               externallyReversible
//	warm_worker                         jail
//
// isolation is jail, microvm or none; builtin and backends other than subprocess are refused at load, for what their fields
// would mean nobody has said. A capability with microvm loads, and its call is refused where the gateway has no
// runner for that. sandboxProfile.syscalls is empty: each system call that a cage denies is a way out of it.
//
// With none the tool runs without a cage, a waiver that policy names. It has what needs no cage: its own program, the
// declared variables, an empty HOME, a session that ends with the call, and the directory that it runs in; each path that
// it is given counts as one that it writes. What only a cage gives is refused at load: fs, network, limits, proc, cache,
// credentials of any kind, and a preview, which would run before anybody has said that it may.
//
// A tool runs in the directory that cwdFromInput names. A capability that names no path at all, by cwdFromInput or an input of
// format path, runs in the caller's workspace, read-only; with cwd: none in backend, and in built-in packs that do not say cwd:
// workspace, in an empty directory of the cage.
//
// A tool writes nowhere but below the path inputs that fs.rw names, as rw: ["{{ input.to }}"], and only in a
// capability that says it changes something. fs.hide takes a file out of a path input that is not written, as
// hide: ["{{ input.repo }}/.git/config"]: the tool finds an empty one in its place. fs.keep keeps a file or directory of one that is
// written as it is, as keep: ["{{ input.repo }}/.git/refs/heads"]: the call is refused if it is not there. fs.libs of a built-in pack names
// directories of shared objects that the tool loads while it runs, as Python's modules: nothing maps code from what is in ro.
//
// fs.exec is what a tool executes beside its own program, and a waiver that policy names: path inputs that it writes, as
// exec: ["{{ input.dir }}"], and in built-in packs programs by their absolute path, or with a slash behind it a directory of
// them. A tool with egress may name programs, but no directories. With cache: true, HOME is kept for the directory that cwdFromInput
// names: one for the tools of the pack that have egress, and one for the others, which see the first read-only at /home/fetched.
// backend.path of a built-in pack lists the directories in which its command is looked for first. With network: {loopback: true} a tool
// reaches itself.
//
// # Egress
//
//	sandboxProfile:
//	  network:
//	    egress:
//	      - "api.example.com:443"    # this name and port
//	      - "*.mirror.example.com:443" # every name below, and not the name itself
//	      - "{{ input.url }}"        # the host and port of an input of format url, which has to be https://
//	      - "{{ input.host }}:443"   # that of an input of format host
//
// A tool reaches these and nothing else, and without the key no network at all. A manifest names places; that one is
// private, or speaks anything but TLS, only the settings of a home can say. What reaches the network is at least
// sideEffectClass readOnly. A preview reaches nothing. In built-in packs network.api names requests to a daemon: see [bailey.ParseRoute].
//
// # Templates
//
// One element of args renders to one element of argv; no shell ever sees it.
//
//	{{ input.x }}                 the value of input x; without a value the element is dropped
//	{{ input.x | default: "20" }} the text 20 where x has no value
//	{{ input.x | flag: "--all" }} the word --all when x is true, else the element is dropped
//
// Text may stand around a placeholder ("--max-count={{ input.limit }}"). An element that is nothing
// but a placeholder expands an array of strings to one element each.
//
// # Credentials
//
//	credentials:
//	  - {name: token, env: DEMO_TOKEN}            # lent for the call, as the value of the variable
//	  - {name: key, env: DEMO_KEY_FILE, file: true} # in a file in memory, whose path is the variable's value
//	  - name: deploy
//	    env: DEMO_DEPLOY                          # the tool has a placeholder, which becomes the value outside the cage:
//	    inject:
//	      to: ["api.example.com:443"]             # on the way to these of network.egress, spelled out
//	      headers: [Authorization]                # in these headers,
//	      query: [key]                            # or parameters of the address
//	      basic: someone                          # or, without query: the variable has the whole header, Authorization: Basic, of this user
//
// # Stdin
//
//	stdin: text # the input stdin, of type string without a format: at most 10 MiB, which may be empty, have lines, and begin with anything
//	stdin: file # the input stdin, of format path: at most 10 MiB, read from the descriptor that was opened, which the cage shows nowhere
//
// Without a value, or with stdin: none, the tool reads nothing. The input stands nowhere else in the manifest. What a person
// approves is this text, or this file as it was then.
//
// # Validators
//
//	validators:
//	  - {type: RequiredPath, input: repo, path: .git}       # it lies below the opened directory; without input, the working one
//	  - {type: RequiredPath, input: repo}                   # the input is given
//	  - {type: RequiredInputKey, key: limit}                # so is this one, and not null
//	  - {type: RequiredInputKey, input: options, key: mode} # an input that is an object has the key
//	  - {type: DenyArgs, args: [--force, -f]}               # no argument may mean one of these
//
// A call that does not meet all of them is refused before anything is decided. Of DenyArgs --force also refuses --force=x, its
// beginnings (--for), and both with one dash; -f also -rf and whatever else has an f behind one dash; another word itself alone.
//
// # Output
//
//	outputSchema: {type: object, required: [items], properties: {items: {type: array}}}
//	output: {page: {limit: limit, next: page}} # inputs: how much the tool writes at once, and from where on
//
// With outputSchema what the tool writes to stdout is one JSON value, judged when it is redacted and hooks have seen it. Where
// it is something else, or was cut, the call has failed: the text is there, and what the tool did is done. Of a text that holds
// a token of redaction only its type is judged, and of an output with one in it not anyOf, oneOf, not, if, const, uniqueItems
// and the numbers of properties. page names, beside an output that was cut, what to narrow; with either key alone too.
//
// # Preview
//
//	preview:
//	  args: [diff, --, "{{ input.path }}"]  # one command line of the same command, or a list of them: [[…], […]]
//	  command: diff                         # another program
//	  env: {LESS: x}                        # beside the capability's own variables
//	  timeout: 5s                           # of each; 10s unless said, at most 30s
//	  covers: contents
//	  bind:
//	    - {look: 1, pattern: 'id ([0-9a-f]{40})\n', argument: "{{ input.name }}", as: "{{ shown }}"}
//
// A preview is what a person who is asked about a call sees of what it would do. It looks only: every path input is
// read-only to it, and nothing is lent. What it writes to stdout is part of the question, and it runs again between the
// answer and the call, which does not run if it then says something else. With covers: contents the manifest promises
// that what it shows is all that matters of the files and directories that the call names; without, the question says that
// their contents are not bound.
//
// With bind a call that is asked about passes what was shown, and not a name that could lead elsewhere by then: in place of
// argument, an element of the backend's args as it stands there, it passes as, where {{ shown }} is what the one group of
// pattern matched. The pattern (RE2) has to match all that the command line look wrote, from end to end; where it does
// not, or what it found is no printable word or begins with a dash, the call is refused and asks nobody. An argument that
// is not passed at all, as one of a flag that is not set, reads nothing. A command line of the preview that has {{ shown }}
// itself runs after the others, and is about what the first of bind found: what is told of a name is then told of what is
// passed. When the preview runs again, it is about the same. A call that is allowed without being asked
// has no preview, and passes argument.
//
// # Command lines
//
//	argvPattern: git log {-n|--max-count|-# limit} {--oneline format=oneline} {--no-color} [rev] [-- path]
//
// A text or a list of them says which command lines mean the capability: the words they begin with, then options in braces
// and operands in brackets. An option of a boolean input has no value, of any other it has one: "-n 5", "-n5", "--max-count=5", and
// with -# "-5". With = it says the input's value itself; without an input it changes nothing that matters, and with _ for
// an input neither does its value. An operand that is left out has what stands behind its =. With ... there may be several, each of which is
// a call; _ matters to nobody. What follows -- goes to operands that are written so. A command line with a word that
// has no place here means something else. A pattern grants nothing.
//
// # The agent's own
//
// In built-in packs a capability of backend: {type: agent} is what an agent does by itself, with tools of its own: the gate
// decides such a call and runs nothing. Its path inputs need not exist.
//
// # Workflows
//
//	backend:
//	  type: workflow
//	  steps:                                # 1 to 16, in their order
//	    - {id: look, call: git.status, input: {repo: "{{ input.repo }}"}, onFailure: continue} # abort unless said
//	    - {id: tell, call: system.echo, input: {message: "{{ steps.look.stdout }}"}}
//
// Each step is a call of its own. A value that is nothing but {{ input.x }} is that input, typed, and left out where it has no value;
// within a text it is a word. {{ steps.x.stdout }} is what an earlier step wrote, redacted, without its last newline. The class,
// risk and reversibility that the manifest states are no milder than those of any step, or the call is refused.
//
// # Schema
//
// inputSchema is JSON Schema 2020-12 with the keywords this package checks and no others. Some are ours:
//
//	format: path       a path that the gate opens and checks; Render wants its canonical form
//	format: subpath    a relative path without "..", below the working directory
//	format: host       a host's name (RFC 1123) or its address, IPv6 without brackets
//	format: address    a host, a port behind it (IPv6 in brackets then), or a number of bits: 10.0.0.0/8
//	format: url        scheme, host and what follows, without user and password; http:// is allowed here
//	acceptsSecret: [PASSWORD]
//	                   a value that is one token of these categories becomes the secret it stands for, where
//	                   policy permits it too (context.restores); addresses are given back in host, address,
//	                   path and subpath, and as the host of a url
//	x-bailey:
//	  allow: [at]      values may start with @
//	  allow: [file]    values may be file:// or fileb:// addresses
//	  allow: [url]     values may be http:// or https:// addresses
//	  allow: [lines]   values may hold tabs and newlines
//	  allow: [empty]   the empty string is a value
//	  allow: [option]  values may start with -: they are options of a program that does what it likes in any case
//
// # Bundles
//
// A pack travels as one signed file. bundle.go has its bytes; [ReadBundle], [Verify] and [Sign] read and write them.
package pack

import (
	"encoding/json"
	"slices"
	"time"

	"bailey"
)

// Risk is how much harm a capability can do.
type Risk string

// The risks, mildest first.
const (
	Low      Risk = "low"
	Medium   Risk = "medium"
	High     Risk = "high"
	Critical Risk = "critical"
)

// SideEffect is what a capability does to the world.
type SideEffect string

// The side-effect classes, mildest first.
const (
	None        SideEffect = "none"
	ReadOnly    SideEffect = "readOnly"
	Additive    SideEffect = "additive"
	Mutating    SideEffect = "mutating"
	Destructive SideEffect = "destructive"
)

// Reversibility is whether what a capability does can be undone.
type Reversibility string

// The classes of reversibility. NothingDone is written readOnly: there is nothing to undo.
const (
	NothingDone          Reversibility = "readOnly"
	Reversible           Reversibility = "reversible"
	ExternallyReversible Reversibility = "externallyReversible"
	Irreversible         Reversibility = "irreversible"
)

// Isolation is what holds the tool while it runs.
type Isolation string

// The isolations. What a gateway has no runner for is refused there.
const (
	Builtin  Isolation = "builtin"
	Jail     Isolation = "jail"
	MicroVM  Isolation = "microvm"
	Open     Isolation = "none"     // no cage, see [NoIsolation]
	Workflow Isolation = "workflow" // each of its steps has its own. Of backend workflow alone
	Agent    Isolation = "agent"    // whoever asks runs it: the gate only decides. Of backend agent, in built-in packs alone
)

// Pack is one parsed manifest file.
type Pack struct {
	Name         string
	Version      string
	Description  string
	Capabilities []*Capability // in the file's order
}

// Capability is one typed action. It is immutable once parsed and safe for concurrent use.
type Capability struct {
	ID            bailey.CapabilityID
	Pack          string
	Version       string // of the pack
	Description   string
	Docs          string
	Risk          Risk
	SideEffect    SideEffect
	Reversibility Reversibility
	Isolation     Isolation
	Command       string        // program name or absolute path
	Timeout       time.Duration // zero is [bailey.DefaultTimeout]
	Builtin       bool          // from a pack that was loaded as built-in
	Dev           bool          // from a pack that nobody signed; every receipt says so
	Digest        string        // SHA-256 of the canonical manifest, hex

	spec     manifest
	schema   *schema
	args     []element
	looks    [][]element // of the preview
	binds    []bound     // of its arguments
	egress   []reached
	output   *schema           // nil: nothing is promised
	patterns []pattern         // of command lines
	folders  map[string]string // that a profile binds, by path input

	credential func(string) string // what the broker calls one; nil: as it is
	quote      func(string) string // nil: as it is
}

// Quoting returns m with errors that show foreign text only after hide has seen all of it. Errors show the
// beginning of a value: whoever hides what is in an error could not tell a secret that was cut.
func (m *Capability) Quoting(hide func(string) string) *Capability {
	q := *m
	q.quote = hide
	return &q
}

func (m *Capability) hidden(v string) string {
	if m.quote == nil {
		return v
	}
	return m.quote(v)
}

// InputSchema returns the schema of the arguments as JSON: always of type object, with
// additionalProperties false. The caller must not change it.
func (m *Capability) InputSchema() json.RawMessage { return m.optional(m.spec.InputSchema) }

// Wants returns the credentials to lend, in the manifest's order.
func (m *Capability) Wants() []bailey.Want {
	wants := make([]bailey.Want, 0, len(m.spec.Credentials))
	for _, c := range m.spec.Credentials {
		w := bailey.Want{Name: c.Name, Env: c.Env, File: c.File}
		if m.credential != nil {
			w.Name = m.credential(c.Name)
		}
		if c.Inject != nil {
			w.Inject = &bailey.InjectWant{To: slices.Clone(c.Inject.To), Headers: slices.Clone(c.Inject.Headers), Query: slices.Clone(c.Inject.Query), Basic: c.Inject.Basic}
		}
		wants = append(wants, w)
	}
	return wants
}

// PathInput is an input that names a file or directory of the caller.
type PathInput struct {
	Name  string
	Write bool // the tool may write there: it says so, or no cage keeps it from that
	Dir   bool // the tool runs there
	New   bool // it need not exist: who runs it may make it
	File  bool // a file and no directory, at most [MaxStdin] bytes: the tool reads it as stdin
}

// PathInputs returns the inputs whose values are paths, sorted by name: those of format path, and
// the one that cwdFromInput names.
func (m *Capability) PathInputs() []PathInput {
	var ins []PathInput
	for _, name := range m.schema.names {
		dir := name == m.spec.Backend.CwdFromInput
		if dir || m.schema.props[name].Format == "path" {
			file := m.spec.Stdin == "file" && name == StdinInput
			ins = append(ins, PathInput{Name: name, Dir: dir, Write: slices.Contains(m.spec.Sandbox.Write, name) || m.Uncaged() && !file,
				New: m.Isolation == Agent && !dir, File: file})
		}
	}
	return ins
}
