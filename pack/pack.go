// Package pack reads capability manifests. It parses the YAML of a pack, checks the arguments of a caller against the
// schema of the capability and renders the argv that a runner executes.
//
// All checks fail closed. If a manifest contains an unknown key, a schema keyword that is not checked, or a field that
// this version cannot implement, the whole pack is refused, with file, line and column. A loaded manifest is therefore
// enforced completely.
//
// # Manifest
//
// A pack is one file, pack.yaml, in camelCase:
//
//	name: git
//	version: 1.0.0
//	description: looking at git repositories
//	author: example                     # optional, as are license and homepage: for people, without effect
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
//	    timeout: 30s                    # from 1ms to 24h; default 10m
//	    docs: https://git-scm.com/docs/git-log
//
// Published manifests use other spellings with the same meaning. Using both spellings of a key at once is an error:
//
//	argv_pattern cwd_from_input input_schema memory_mib output_schema sandbox_profile side_effect_class
//	read_only, readonly                 readOnly
//	write_remote                        mutating
//	externally_reversible               externallyReversible
//	warm_worker                         jail
//
// The isolation is jail, microvm or none. The isolation builtin and the backends builtin, mcp, remote and sandbox are
// refused at load, because their fields have no defined meaning. With microvm each call has a virtual machine of its
// own, with the tool of an image that the settings name. sandboxProfile.syscalls must be empty, because each system
// call that a cage denies could be used to escape from it.
//
// With isolation none the tool runs without a cage, which is a waiver that policy names. The tool gets only what needs
// no cage: its own program, the declared variables, an empty HOME, a session that ends with the call, and its working
// directory. Each path that it gets counts as a path that it writes. Features that need a cage are refused at load: fs,
// network, limits, proc, cache, credentials of any kind, and a preview, because a preview would run before the call is
// allowed.
//
// The working directory of a tool is the one that cwdFromInput names. If a capability names no path at all, by
// cwdFromInput or by an input of format path, it runs in the workspace of the caller, read-only. With cwd: none in
// backend, and in built-in packs without cwd: workspace, it runs in an empty directory of the cage instead.
//
// The key fs of sandboxProfile declares access to files:
//
//	rw: ["{{ input.to }}"]                   # the tool can write only below these path inputs
//	hide: ["{{ input.repo }}/.git/config"]   # a file of a path input that is not written; the tool sees an empty file instead
//	keep: ["{{ input.to }}/.git/refs/heads"] # a file or directory below rw that stays as it is
//
// rw requires a side-effect class that changes something. If a path in keep does not exist, the call is refused. In
// built-in packs fs.libs names directories of shared objects that the tool loads at run time, such as Python modules.
// Files in fs.ro cannot be mapped as code.
//
// fs.exec lists the programs that a tool may execute in addition to its own, and is a waiver that policy names. It
// contains path inputs that the tool writes, such as "{{ input.dir }}", and absolute paths of programs, which are pinned
// like the tool itself. In built-in packs programs are no waiver, and a path with a slash at its end is a directory of
// programs. A tool with egress may name programs, but no
// directories. With cache: true, HOME is kept for the directory that cwdFromInput names. There are two such homes: one
// for the tools of the pack that have egress, and one for the others, which see the first one read-only at
// /home/fetched. In a built-in pack, backend.path lists the directories in which the command is searched first. With
// network: {loopback: true} a tool can connect to itself.
//
// # Fragments
//
//	fragments:
//	  reading: {risk: low, sideEffectClass: readOnly, backend: {type: subprocess, command: git, args: [--no-pager]}}
//	capabilities:
//	  - {name: log, like: reading, backend: {args: [log]}} # its args are --no-pager log
//
// A capability with like: NAME, or a list of names, is read as if it contained these parts of the pack. If both have a
// key, mappings and lists are joined, the fragment first; any other value is the capability's own. A fragment cannot be
// like another one, and a fragment that no capability uses is a fault.
//
// # Egress
//
//	sandboxProfile:
//	  network:
//	    egress:
//	      - "api.example.com:443"    # this name and port
//	      - "*.mirror.example.com:443" # every name below, but not the name itself
//	      - "{{ input.url }}"        # the host and port of an input of format url, which must be https://
//	      - "{{ input.host }}:443"   # the host in an input of format host
//
// A tool can reach only these destinations. Without the key it has no network. A manifest only names destinations. Only
// the network settings of the operator can allow private addresses or protocols other than TLS. A capability that
// reaches the network must be at least sideEffectClass readOnly. A preview has no network. In built-in packs
// network.api lists requests to a daemon, see [bailey.ParseRoute].
//
// # Templates
//
// One element of args renders to one element of argv. No shell is involved.
//
//	{{ input.x }}                 the value of input x; the element is dropped if x has no value
//	{{ input.x | default: "20" }} the text 20 if x has no value
//	{{ input.x | flag: "--all" }} the word --all if x is true, otherwise the element is dropped
//	{{ input.x | after: "--" }}   the word -- and then the value, both dropped if x has no value; -- is written once
//	{{ input.x | each: "--f=" }}  the text --f= and an item in one word, for each item of the list x
//
// A placeholder may be part of a longer text ("--max-count={{ input.limit }}"). If an element is only a placeholder and
// its value is an array of strings, it renders to one element for each string.
//
// # Checkout
//
//	checkout:
//	  repository: repo       # input repo is OWNER/NAME of the repository at GitHub to which the caller's directory belongs
//	  branch: head           # input head is the current branch, BRANCH or OWNER:BRANCH, if repo is not given either,
//	  unless: number         # and the input number is not
//	  without: [org]         # if one of these inputs is given, nothing is filled in
//	  within: [endpoint]     # {owner}, {repo} and {branch} in these inputs are replaced
//
// The gate fills in these inputs from .git of the caller's directory or of one above it in the workspace, before it
// checks the input, if a call omits them. Policy and receipt see the values. The files of .git may be hostile: they can
// name a repository of github.com and nothing else. Files that git could read differently, for example with
// url.*.insteadOf or include, are refused.
//
// # Credentials
//
//	credentials:
//	  - {name: token, env: DEMO_TOKEN}            # lent for the call, as the value of the variable
//	  - {name: key, env: DEMO_KEY_FILE, file: true} # in a memory file; the variable contains its path
//	  - name: deploy
//	    env: DEMO_DEPLOY                          # the tool gets a placeholder, which is replaced with the value outside the cage:
//	    inject:
//	      to: ["api.example.com:443"]             # on the way to these entries of network.egress, without templates
//	      headers: [Authorization]                # in these headers,
//	      query: [key]                            # or in these query parameters
//	      below: url                              # only in requests below the address in this input, which egress names; a
//	                                              # call whose address is at none of these places needs no such credential
//	      basic: someone                          # or, without query: the variable is the whole header, Authorization: Basic, for this user
//	  - name: keys
//	    env: AWS_KEYS
//	    file: true                                # in the form of ~/.aws/credentials; the tool gets placeholders, and
//	    inject: {to: ["*.amazonaws.com:443"], sign: aws} # its requests to these places are signed outside the cage
//	  - name: npmrc
//	    env: NPM_CONFIG_USERCONFIG
//	    file: true                                # an npmrc; the tool gets its tokens for these places as placeholders, and
//	    inject: {to: ["registry.npmjs.org:443"], tokens: npmrc} # no other line of it
//
// # Limits of a credential
//
//	narrow:
//	  token: {repository: "{{ input.repo }}"} # lend the credential token for this repository alone, if its issuer can
//
// The kinds are repository (OWNER/NAME or an https address at github.com), namespace, region, service, bucket (words of a
// command line that name buckets of S3) and access (read). A value is one word, or one or more inputs with spaces between. The broker only narrows: a
// limit never adds to the rights in its table, and it refuses what the table does not allow. A capability of class
// readOnly has access: read for each credential. If an input has no value, it is no limit.
//
// # Remotes
//
//	remote: {repo: repo, name: remote, url: url, options: addressing, for: push} # in built-in packs; or fetch, pull
//
// The gate reads the configuration of the git repository in the path input repo, and fills in the inputs before it
// renders, decides and asks: the remote if the call names none, its https address, and options with which git uses
// exactly this address. Without name, url is a list with the addresses of all remotes. A configuration that would have
// git do something else is refused, see package gitremote.
//
// # Stdin
//
//	stdin: text # the input stdin, of type string without a format: at most 10 MiB; may be empty, have lines, and begin with any character
//	stdin: file # the input stdin, of format path: at most 10 MiB, read from the opened descriptor; the file is not visible in the cage
//
// If the input has no value, or with stdin: none, the standard input of the tool is empty. The input must not be used
// anywhere else in the manifest. An approval covers this text, or this file as it was at the time of the question.
//
// # Validators
//
//	validators:
//	  - {type: RequiredPath, input: repo, path: .git}       # exists below the opened directory; without input, the working directory
//	  - {type: RequiredPath, input: repo}                   # the input is given
//	  - {type: RequiredInputKey, key: limit}                # the input is given and not null
//	  - {type: RequiredInputKey, input: options, key: mode} # an input that is an object has the key
//	  - {type: DenyArgs, args: [--force, -f]}               # no argument may mean one of these
//
// A call that violates one of them is refused before any decision. The DenyArgs entry --force also refuses --force=x,
// its prefixes (--for), and both forms with one dash. -f also refuses -rf and any other argument with one dash and an
// f. An entry without a dash refuses only the same word.
//
// # Output
//
//	outputSchema: {type: object, required: [items], properties: {items: {type: array}}}
//	output: {page: {limit: limit, next: page}} # inputs: how much the tool writes at once, and the start position
//
// With outputSchema the stdout of the tool must be one JSON value. It is checked after redaction and after the hooks.
// If it does not match, or was truncated, the call fails: the caller gets the text, and the effects of the tool remain.
// If a string contains a redaction token, only its type is checked. If any part of the output was redacted, anyOf,
// oneOf, not, if, const, uniqueItems and the property counts are not checked. page names the inputs that the caller
// should change if the output was truncated. Either of its keys may be omitted.
//
// # Preview
//
//	preview:
//	  args: [diff, --, "{{ input.path }}"]  # one command line of the same command, or a list of them: [[…], […]]
//	  command: diff                         # another program
//	  env: {LESS: x}                        # in addition to the variables of the capability
//	  timeout: 5s                           # for each; default 10s, at most 30s
//	  covers: contents
//	  bind:
//	    - {look: 1, pattern: 'id ([0-9a-f]{40})\n', argument: "{{ input.name }}", as: "{{ shown }}"}
//
// A preview shows the effect of a call to the person who is asked about it. All path inputs are read-only for it, and
// it gets no credentials. Its stdout is part of the question. It runs again between the answer and the call. If the
// output differs then, the call does not run. With covers: contents the manifest promises that the preview shows
// everything that matters in the files and directories of the call. Otherwise the question says that their contents are
// not bound.
//
// With bind, a call that needs an approval passes the value that the preview showed, instead of a name that could
// resolve to something else later. The element of the backend's args that equals argument is replaced with as, in which
// {{ shown }} is the match of the only group of pattern. The pattern (RE2) must match the whole output of the command
// line look. If it does not match, or the value is not a printable word or begins with a dash, the call is refused and
// no person is asked. If the argument is not passed at all, for example because a flag is not set, the output is not
// read. A command line of the preview that contains {{ shown }} runs after the others, with the value of the first bind
// entry, so it describes the value that is passed. The second run of the preview uses the same value. A call that is
// allowed without an approval has no preview and passes argument.
//
// # Command lines
//
//	argvPattern: git {--no-pager} log {-n|--max-count|-# limit} {--no-color} {... options} [revs] [-- paths]
//
// A text or a list of texts describes the command lines that are equivalent to the capability: the leading words, with
// options in braces between and after them, then operands in brackets. An option may stand only where it is written:
// before the next word, or after all of them. {... options} takes every option in the table of the input, which is a
// list (see Schema); it also takes an option whose own input is set already. The option of a boolean input has no value. The option of any other input
// has one: "-n 5", "-n5", "--max-count=5", with -# also "-5", and with -n= also "-n=5". If the input is a list, each
// occurrence of the option adds a value. An option with = sets the input to that value. An
// option without an input has no relevant effect and no value; with _ as the input it has a value that is ignored, with # a number.
// If
// an operand with = is missing, the text after the = is used. An operand with ... may occur several times, and each
// occurrence is a separate call. The operand _ is ignored. Words after -- match the operands that are written with --.
// If the input of an option ends with !, only lines that set it match, with _! only lines that have the option. With
// [--] a line with -- does not match, because the tool reads options after it. If the input of an operand has an enum, only
// these words match. The operand [+ words] takes the rest of the line, options too, from the first word that is no
// option or that follows another operand; [... words] is the same, and also begins with -- or an option that the pattern
// does not have. From the operand that begins with + on, as in [image] [+command], no word is an option of the tool, nor
// is --. In [url<address] the word is an address of git for ssh, as git@host:path, which the second input gets; the first gets
// it for https. A command line with any other word does not match. A pattern grants no rights. The leading options -C of git
// set the input that cwdFromInput names.
//
// With cagedLines: true the lines are equivalent only if the tool runs in a cage, for example because it reads settings or
// plug-ins of its user. A hook that decides about an agent's own shell does not use such a pattern.
//
// # The agent's own
//
// In built-in packs, backend: {type: agent} describes an action that an agent performs with its own tools. The gate
// decides such a call but runs nothing. Its path inputs need not exist.
//
// # Workflows
//
//	backend:
//	  type: workflow
//	  steps:                                # 1 to 16, in order
//	    - {id: look, call: git.status, input: {repo: "{{ input.repo }}"}, onFailure: continue} # default abort
//	    - {id: tell, call: system.echo, input: {message: "{{ steps.look.stdout }}"}}
//
// Each step is a call of its own. A value that consists only of {{ input.x }} is that input with its type, and is
// omitted if the input has no value. Inside a text it is a word. {{ steps.x.stdout }} is the redacted output of an
// earlier step without its last newline. If the class, risk or reversibility of the manifest is milder than that of a
// step, the call is refused.
//
// # Schema
//
// inputSchema is JSON Schema 2020-12, restricted to the keywords that this package checks. Some keywords are
// extensions:
//
//	format: path       a path that the gate opens and checks; Render needs its canonical form
//	format: subpath    a relative path without "..", below the working directory
//	format: host       a host name (RFC 1123) or an address, IPv6 without brackets
//	format: address    a host, a host with a port (IPv6 then in brackets), or an address with a prefix length: 10.0.0.0/8
//	format: url        scheme, host and the rest, without user and password; http:// is allowed here
//	acceptsSecret: [PASSWORD]
//	                   a value that is one token of these categories is replaced with its secret, if policy
//	                   also permits it (context.restores); addresses are restored in host, address,
//	                   path and subpath, and as the host of a url
//	x-bailey:
//	  allow: [at]      values may start with @
//	  allow: [file]    values may be file:// or fileb:// addresses
//	  allow: [url]     values may be http:// or https:// addresses
//	  allow: [plain]   for format url: http:// may stand in egress, and before a value without a scheme. Unless the
//	                   settings of the operator say that the place speaks plain HTTP, it is not reached
//	  allow: [lines]   values may contain tabs and newlines
//	  allow: [empty]   the empty string is a value
//	  allow: [option]  values may start with -: they are options of a program that can do anything in any case
//	  options: "--all -n# --since= --out=json|path=* --color[=] --merged[+] -#"
//	                   the value is one option of this list, with its value in the same word: --since=x, -n5. After the
//	                   name, = requires a value, # a number, =a|b* one of these (* is any ending, ./ a relative path below
//	                   the working directory), =~RE one that this expression (RE2) matches entirely, [=] permits a value,
//	                   [+] as well, which on a command line may be the next word, [#] a number, also as the next word;
//	                   -# is a number after a dash. -w|--work= is one option with two names in a command line; its item
//	                   has the last. : is like =, if a command line has the value in a word of its own; with :: two words
//	                   follow, and the item is --arg=NAME=VALUE. With -= options are read as package flag of Go does:
//	                   -o=x and --o=x, and no letters joined.
//	                   With --* the value may also be any other long option in lower case (with -* also one of one letter),
//	                   or a word that begins with no dash: one item is then one word, and the items keep their order.
//	                   !--name excludes an option and its abbreviations. In argvPattern such an option may stand where
//	                   the list is the next operand: tool [verb] {... args} [args]
//
// # Bundles
//
// A pack is distributed as one signed file. bundle.go describes the format; see [ReadBundle], [Verify] and [Sign].
package pack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
)

// Risk is the amount of harm that a capability can do.
type Risk string

// Risks, from low to high.
const (
	Low      Risk = "low"
	Medium   Risk = "medium"
	High     Risk = "high"
	Critical Risk = "critical"
)

// SideEffect is the kind of change that a capability makes.
type SideEffect string

// Side-effect classes, mildest first.
const (
	None        SideEffect = "none"
	ReadOnly    SideEffect = "readOnly"
	Additive    SideEffect = "additive"
	Mutating    SideEffect = "mutating"
	Destructive SideEffect = "destructive"
)

// Rank returns 0 for the mildest class, and more for each class that does more.
func (s SideEffect) Rank() int { return slices.Index(sideEffectOrder, s) }

// Reversibility tells whether the effect of a capability can be undone.
type Reversibility string

// Classes of reversibility. NothingDone is written readOnly, because there is nothing to undo.
const (
	NothingDone          Reversibility = "readOnly"
	Reversible           Reversibility = "reversible"
	ExternallyReversible Reversibility = "externallyReversible"
	Irreversible         Reversibility = "irreversible"
)

// Isolation is the kind of isolation in which the tool runs.
type Isolation string

// Kinds of isolation. A gateway refuses a kind for which it has no runner.
const (
	Builtin  Isolation = "builtin"
	Jail     Isolation = "jail"
	MicroVM  Isolation = "microvm"
	Open     Isolation = "none"     // no cage, see [NoIsolation]
	Workflow Isolation = "workflow" // each step has its own isolation; only for backend workflow
	Host     Isolation = "host"     // a source host limits the command; only for backend remote in built-in packs
	Sandbox  Isolation = "sandbox"  // a virtual machine that the call names; only for backend sandbox in built-in packs
	Model    Isolation = "model"    // a request to a model, made by the model proxy; only for backend model in built-in packs
	Agent    Isolation = "agent"    // the agent runs it, the gate only decides; only for backend agent in built-in packs
)

// Pack is one parsed manifest file.
type Pack struct {
	Name         string
	Version      string
	Description  string
	Author       string // as its author writes it; the key of a signature is what counts
	License      string // for example Apache-2.0
	Homepage     string
	Capabilities []*Capability // in the order of the file
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
	Builtin       bool          // from a built-in pack
	Dev           bool          // from an unsigned pack; every receipt says so
	Digest        string        // SHA-256 of the canonical manifest, hex

	spec     manifest
	schema   *schema
	args     []argTemplate
	looks    [][]argTemplate // of the preview
	binds    []parsedBind    // bindings of its arguments
	egress   []egressEntry
	output   *schema           // nil: no promise
	patterns []pattern         // of command lines
	folders  map[string]string // bound by a profile, by path input

	noBroker   bool                // see WithoutBroker
	credential func(string) string // maps a credential to its name in the broker; nil: same name
	quote      func(string) string // nil: unchanged
}

// Quoting returns a copy of m that passes untrusted text through hide before its errors contain it. Errors show only
// the beginning of a value, so the text must be redacted before it is cut: a truncated secret cannot be recognised.
func (m *Capability) Quoting(hide func(string) string) *Capability {
	q := *m
	q.quote = hide
	return &q
}

// WithTimeout returns a copy of m with a shorter time limit. 0 changes nothing. A limit that is longer than that of the
// manifest is Invalid, and the result is m.
func (m *Capability) WithTimeout(d time.Duration) (*Capability, error) {
	most := m.Timeout
	if most == 0 {
		most = bailey.DefaultTimeout
	}
	switch {
	case d == 0:
		return m, nil
	case d < time.Millisecond || d > most:
		return m, bailey.Invalid.Errorf(fmt.Sprintf("use a timeout from 1ms to %s, or none", most),
			"%s may run for %s at most, not for %s", m.ID, most, d)
	}
	limited := *m
	limited.Timeout = d
	return &limited, nil
}

func (m *Capability) redactText(v string) string {
	if m.quote == nil {
		return v
	}
	return m.quote(v)
}

// InputSchema returns the schema of the arguments as JSON. It always has type object and additionalProperties false.
// The caller must not change it.
func (m *Capability) InputSchema() json.RawMessage { return m.relaxRequired(m.spec.InputSchema) }

// Wants returns the credentials to lend, in the manifest's order.
func (m *Capability) Wants() []bailey.Want {
	wants := make([]bailey.Want, 0, len(m.spec.Credentials))
	for _, c := range m.spec.Credentials {
		w := bailey.Want{Name: c.Name, Env: c.Env, File: c.File}
		if m.credential != nil {
			w.Name = m.credential(c.Name)
		}
		if c.Inject != nil {
			w.Inject = &bailey.InjectWant{To: slices.Clone(c.Inject.To), Headers: slices.Clone(c.Inject.Headers),
				Query: slices.Clone(c.Inject.Query), Basic: c.Inject.Basic, Sign: c.Inject.Sign, Tokens: c.Inject.Tokens}
		}
		wants = append(wants, w)
	}
	return wants
}

// PathInput is an input that names a file or directory of the caller.
type PathInput struct {
	Name  string
	Write bool // the tool may write: declared, or no cage prevents it
	Dir   bool // the tool runs there
	New   bool // need not exist; the agent may create it
	File  bool // a file of at most [MaxStdin] bytes, which the tool reads as standard input
	// Repository is set if the input names a directory of a git repository, and the place is the top of it.
	Repository bool
}

// PathInputs returns the inputs whose values are paths, sorted by name: those of format path, and the one that
// cwdFromInput names.
func (m *Capability) PathInputs() []PathInput {
	var ins []PathInput
	for _, name := range m.schema.names {
		dir := name == m.spec.Backend.CwdFromInput
		if dir || m.schema.props[name].Format == "path" {
			file := m.spec.Stdin == "file" && name == StdinInput
			ins = append(ins, PathInput{Name: name, Dir: dir, Write: slices.Contains(m.spec.Sandbox.Write, name) || m.Uncaged() && !file,
				New: m.Isolation == Agent && !dir, File: file,
				Repository: name == m.spec.Backend.Repository})
		}
	}
	return ins
}

// Subpaths returns the values of an input that are relative paths below the working directory: those of format subpath,
// and values of options for which a table permits only such paths. They are sorted.
func (m *Capability) Subpaths(input map[string]any) (list []string) {
	for _, name := range m.schema.names {
		r, table := m.schema.props[name], m.tableOf(name)
		values, isList := input[name].([]any)
		if isList && r.Items != nil {
			r = r.Items.followRef()
		} else if !isList {
			values = []any{input[name]}
		}
		for _, v := range values {
			switch text, ok := v.(string); {
			case !ok:
			case r.Format == "subpath":
				list = append(list, text)
			case table != nil && table.pathOf(text) != "":
				list = append(list, table.pathOf(text))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// InputNames returns the names of the inputs, sorted.
func (m *Capability) InputNames() []string { return slices.Clone(m.schema.names) }

// InputText returns the descriptions of the inputs.
func (m *Capability) InputText() string {
	var all []string
	for _, name := range m.schema.names {
		all = append(all, m.schema.props[name].Description)
	}
	return strings.Join(all, " ")
}

var (
	riskOrder          = []Risk{Low, Medium, High, Critical}
	sideEffectOrder    = []SideEffect{None, ReadOnly, Additive, Mutating, Destructive}
	reversibilityOrder = []Reversibility{NothingDone, Reversible, ExternallyReversible, Irreversible}
)

// Milder returns the first property in which m declares less than other, or "".
func (m *Capability) Milder(other *Capability) string {
	switch {
	case m.SideEffect.Rank() < other.SideEffect.Rank():
		return fmt.Sprintf("sideEffectClass %s, but %s has %s", m.SideEffect, other.ID, other.SideEffect)
	case slices.Index(reversibilityOrder, m.Reversibility) < slices.Index(reversibilityOrder, other.Reversibility):
		return fmt.Sprintf("reversibility %s, but %s has %s", m.Reversibility, other.ID, other.Reversibility)
	case slices.Index(riskOrder, m.Risk) < slices.Index(riskOrder, other.Risk):
		return fmt.Sprintf("risk %s, but %s has %s", m.Risk, other.ID, other.Risk)
	}
	return ""
}

// Bindings are the values with which a profile fills in parts of a manifest.
type Bindings struct {
	Credential func(name string) string  // name of a credential in the broker; nil: as in the manifest
	Folder     func(input string) string // value of a path input that a call omits; nil or "": none
}

// Bound returns a copy of m with bindings. Its behavior and digest do not change.
func (m *Capability) Bound(b Bindings) *Capability {
	bound := *m
	bound.credential, bound.folders = b.Credential, nil
	for _, in := range m.PathInputs() {
		if b.Folder == nil {
			break
		}
		if path := b.Folder(in.Name); path != "" {
			if bound.folders == nil {
				bound.folders = map[string]string{}
			}
			bound.folders[in.Name] = path
		}
	}
	return &bound
}

// HasFolder reports whether a profile names the folder for an input that a call omits.
func (m *Capability) HasFolder(input string) bool { return m.folders[input] != "" }

// withFolders returns the input with the bound folders that it omits.
func (m *Capability) withFolders(input map[string]any) map[string]any {
	if len(m.folders) == 0 {
		return input
	}
	all := make(map[string]any, len(input)+len(m.folders))
	for name, path := range m.folders {
		all[name] = path
	}
	maps.Copy(all, input)
	return all
}

// relaxRequired returns the schema without the requirement for bound folders.
func (m *Capability) relaxRequired(schema json.RawMessage) json.RawMessage {
	if len(m.folders) == 0 {
		return schema
	}
	return withoutRequired(schema, func(name string) bool { return m.folders[name] != "" })
}

// InputSchemaWithout returns [Capability.InputSchema], but does not require one input.
func (m *Capability) InputSchemaWithout(input string) json.RawMessage {
	return withoutRequired(m.InputSchema(), func(name string) bool { return name == input })
}

// withoutRequired returns a schema that does not require the inputs that omit accepts.
func withoutRequired(schema json.RawMessage, omit func(name string) bool) json.RawMessage {
	var tree map[string]json.RawMessage
	var required []string
	if json.Unmarshal(schema, &tree) != nil || json.Unmarshal(tree["required"], &required) != nil {
		return schema
	}
	delete(tree, "required")
	var err error
	if required = slices.DeleteFunc(required, omit); len(required) > 0 {
		if tree["required"], err = json.Marshal(required); err != nil {
			return schema
		}
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return schema
	}
	return raw
}

// ProjectInput returns the path input that names the directory of the project in which a call works: of the git
// repository, otherwise the one in which the tool runs. It returns "" if there is none on this machine.
func (m *Capability) ProjectInput() string {
	name := m.spec.Backend.Repository
	if name == "" {
		name = m.spec.Backend.CwdFromInput
	}
	if m.Isolation == Agent || m.Isolation == Host || m.Isolation == Sandbox {
		return ""
	}
	return name
}

// Target returns the object that a call with this input acts on: the host or the sandbox that it names, or this machine.
func (c *Capability) Target(input map[string]any) bailey.Target {
	if id, ok := input["sandbox"].(string); ok && c.Isolation == Sandbox {
		return bailey.Target{Kind: "sandbox", Name: id}
	}
	if host, ok := input["host"].(string); ok && c.Isolation == Host {
		return bailey.Target{Kind: "host", Name: host}
	}
	return bailey.Target{Kind: "local"}
}
