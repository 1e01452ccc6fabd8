package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"bailey"
	"bailey/internal/strictyaml"

	"github.com/goccy/go-yaml/ast"
)

// manifest is one capability as written, with aliases resolved and defaults filled in. Digest covers its JSON. A new
// field must have omitempty, otherwise every digest changes.
type manifest struct {
	Pack          string            `json:"pack"`
	Version       string            `json:"version"`
	ID            string            `json:"id"`
	Description   string            `json:"description"`
	Docs          string            `json:"docs,omitempty"`
	Backend       backend           `json:"backend"`
	Risk          Risk              `json:"risk"`
	SideEffect    SideEffect        `json:"sideEffectClass"`
	Reversibility Reversibility     `json:"reversibility"`
	Isolation     Isolation         `json:"isolation"`
	Sandbox       sandbox           `json:"sandboxProfile"`
	InputSchema   json.RawMessage   `json:"inputSchema"`
	Credentials   []credential      `json:"credentials,omitempty"`
	ArgvPattern   []string          `json:"argvPattern,omitempty"`
	CagedLines    bool              `json:"cagedLines,omitempty"`
	Timeout       time.Duration     `json:"timeout,omitempty"` // nanoseconds
	Env           map[string]string `json:"env,omitempty"`     // from backend and sandboxProfile
	Preview       *preview          `json:"preview,omitempty"`
	Checkout      *checkout         `json:"checkout,omitempty"`
	Remote        *remoteUse        `json:"remote,omitempty"`

	Narrow map[string]map[string]limit `json:"narrow,omitempty"` // by credential and kind
	stdioSpec
}

type backend struct {
	Type         string   `json:"type"`
	Command      string   `json:"command"`
	Args         []string `json:"args,omitempty"`
	CwdFromInput string   `json:"cwdFromInput,omitempty"`
	Signs        string   `json:"signs,omitempty"`      // commit or tag: what the command makes, which may have to be signed
	Repository   string   `json:"repository,omitempty"` // path input that names a directory of a git repository
	Cwd          string   `json:"cwd,omitempty"`        // workspace or none; "" means the default of [Capability.Workspace]
	Path         []string `json:"path,omitempty"`       // directories that are searched first for the command
	Steps        []step   `json:"steps,omitempty"`      // for a workflow
}

type sandbox struct {
	Read   []string       `json:"ro,omitempty"`
	Write  []string       `json:"rw,omitempty"`   // names of path inputs
	Hide   []inputSubpath `json:"hide,omitempty"` // resolved when the inputs are known
	Keep   []inputSubpath `json:"keep,omitempty"` // files below Write that stay unchanged
	Libs   []string       `json:"libs,omitempty"`
	Exec   []string       `json:"exec,omitempty"`
	Memory int64          `json:"memoryMiB,omitempty"`
	Tasks  int64          `json:"tasks,omitempty"`
	Proc   bool           `json:"proc,omitempty"`
	Work   buildRights    `json:"work,omitzero"`
	Egress []string       `json:"egress,omitempty"` // canonical, or as written
	API    *bailey.API    `json:"api,omitempty"`
}

// inputSubpath is a path below a path input that the tool cannot see.
type inputSubpath struct {
	Input string `json:"input"`
	Path  string `json:"path"` // clean, begins with a slash
}

type credential struct {
	Name string `json:"name"`
	Env  string `json:"env"`
	File bool   `json:"file,omitempty"`
	// Inject is set if the value is inserted at the edge of the cage and the tool gets a placeholder.
	Inject *inject `json:"inject,omitempty"`
}

// Parse parses one pack.yaml. Errors use name as the file name. The pack is not treated as built-in: it must not set
// variables of loaders and interpreters, name helper programs, or use an id outside its own name.
func Parse(name string, data []byte) (*Pack, error) { return parsePack(name, data, false) }

func parsePack(name string, data []byte, builtin bool) (*Pack, error) {
	r := &reader{File: &strictyaml.File{Format: &manifestFormat, Name: name}, builtin: builtin}
	body := r.Body(data)
	if body == nil {
		if len(r.Faults) == 0 {
			r.AddFault(nil, r.Documents, 0)
		}
		return nil, r.toError()
	}
	p := r.readPack(body)
	if err := r.toError(); err != nil {
		return nil, err
	}
	return p, nil
}

func (r *reader) readPack(n ast.Node) *Pack {
	p := &Pack{}
	var list ast.Node
	shared := &fragments{parts: map[string]ast.Node{}, used: map[string]bool{}}
	seen := r.Fields(n, "the pack", strictyaml.Fields{
		"name":         r.wordField("name", packName(), &p.Name),
		"version":      r.wordField("version", version(), &p.Version),
		"description":  strictyaml.TextField(r.File, "description", &p.Description),
		"author":       strictyaml.TextField(r.File, "author", &p.Author),
		"license":      strictyaml.TextField(r.File, "license", &p.License),
		"homepage":     strictyaml.TextField(r.File, "homepage", &p.Homepage),
		"fragments":    func(n ast.Node) { r.readFragments(n, shared) },
		"capabilities": func(n ast.Node) { list = n },
	})
	r.requireKeys(n, "the pack", seen, "name", "version", "capabilities")
	if list == nil {
		return p
	}
	items := r.Items(list, "capabilities")
	if len(items) == 0 {
		r.AddFault(list, "capabilities needs at least one")
	}
	ids := map[bailey.CapabilityID]bool{}
	for _, item := range items {
		c := r.readCapability(r.expandLike(item, shared), p)
		if ids[c.ID] {
			r.AddFault(item, "capability %s is here twice", c.ID)
		}
		ids[c.ID] = true
		p.Capabilities = append(p.Capabilities, c)
	}
	for _, name := range sortedKeys(shared.parts) {
		if !shared.used[name] {
			r.AddFault(shared.parts[name], "no capability is like the fragment %s", name)
		}
	}
	return p
}

// deferredNodes contains the parts of a capability that are read after the rest is known.
type deferredNodes struct {
	exec, backend, sandbox, args, steps, input, write, hide, keep, egress, api, preview, argv ast.Node
	checkout, remote, narrow                                                                  ast.Node
	inject                                                                                    map[ast.Node]*inject
	stdioNodes
}

func (r *reader) readCapability(n ast.Node, p *Pack) *Capability {
	before := len(r.Faults)
	m := manifest{Pack: p.Name, Version: p.Version, Isolation: Jail, Env: map[string]string{}}
	at := deferredNodes{}
	var name string
	seen := r.Fields(n, "a capability", r.capabilityFields(&m, &name, &at))
	r.requireKeys(n, "a capability", seen, "name", "backend", "risk", "sideEffectClass", "reversibility")
	m.ID = r.qualifyID(n, p.Name, name)
	if at.backend != nil {
		r.readBackend(at.backend, &m, &at)
	}
	if at.sandbox != nil {
		r.readSandbox(at.sandbox, &m, &at)
	}
	if m.Reversibility == NothingDone && m.SideEffect != None && m.SideEffect != ReadOnly {
		r.AddFault(n, "%s: reversibility readOnly contradicts sideEffectClass %s", m.ID, m.SideEffect)
	}
	c := &Capability{Builtin: r.builtin}
	c.schema = r.readSchema(n, at.input, &m)
	if c.schema != nil {
		r.checkStdin(at.stdin, &m, c.schema)
		c.args = r.readTemplates(at.args, m.Backend.Args, c.schema)
		r.checkCwdInput(at.backend, m.Backend.CwdFromInput, c.schema)
		r.checkRepositoryInput(at.backend, &m, c.schema)
		r.readSteps(&at, &m, c.schema)
		r.readPathAccess(&m, &at, c.schema)
		c.egress = append(r.readEgress(&at, &m, c.schema), r.checkDaemonAPI(at.api, &m, c.schema)...)
		r.readRemoteUse(at.remote, &m, c.schema)
		r.readNarrow(at.narrow, &m, c.schema)
		r.readExec(&m, &at, c.schema)
		r.checkUncaged(n, &m, &at)
		c.patterns = r.parsePatterns(at.argv, m.ArgvPattern, c.schema)
		r.readCheckout(at.checkout, &m, c.schema)
		c.looks, c.binds = r.readPreview(at.preview, &m, c.schema)
		r.readValidators(at.validators, &m, c.schema)
		c.output = r.readOutput(at.outputSchema, at.output, &m, c.schema)
	}
	if len(r.Faults) == before {
		c.fillFrom(m)
	}
	c.ID = bailey.CapabilityID(m.ID)
	return c
}

func (r *reader) capabilityFields(m *manifest, name *string, at *deferredNodes) strictyaml.Fields {
	return strictyaml.Fields{
		"name":            r.wordField("name", capabilityName(), name),
		"description":     strictyaml.TextField(r.File, "description", &m.Description),
		"docs":            strictyaml.TextField(r.File, "docs", &m.Docs),
		"risk":            choiceField(r, "risk", risks, &m.Risk),
		"sideEffectClass": choiceField(r, "sideEffectClass", sideEffects, &m.SideEffect),
		"reversibility":   choiceField(r, "reversibility", reversibilities, &m.Reversibility),
		"isolation":       r.isolationField(&m.Isolation),
		"backend":         func(n ast.Node) { at.backend = n },
		"sandboxProfile":  func(n ast.Node) { at.sandbox = n },
		"inputSchema":     func(n ast.Node) { at.input = n },
		"outputSchema":    func(n ast.Node) { at.outputSchema = n },
		"output":          func(n ast.Node) { at.output = n },
		"validators":      func(n ast.Node) { at.validators = n },
		"credentials":     r.credentialsField(&m.Credentials, at),
		"argvPattern":     func(n ast.Node) { at.argv = n; r.argvPatternField(&m.ArgvPattern)(n) },
		"checkout":        func(n ast.Node) { at.checkout = n },
		"cagedLines":      r.BoolField("cagedLines", &m.CagedLines),
		"preview":         func(n ast.Node) { at.preview = n },
		"remote":          func(n ast.Node) { at.remote = n },
		"narrow":          func(n ast.Node) { at.narrow = n },
		"stdin":           func(n ast.Node) { at.stdin = n; choiceField(r, "stdin", stdins, &m.Stdin)(n) },
		"timeout":         r.timeoutField(&m.Timeout),
	}
}

// fillFrom completes c from a valid manifest.
func (c *Capability) fillFrom(m manifest) {
	// Marshal cannot fail: all values are strings, integers and checked JSON.
	canonical, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(canonical)
	c.Pack, c.Version, c.Description, c.Docs = m.Pack, m.Version, m.Description, m.Docs
	c.Risk, c.SideEffect, c.Reversibility, c.Isolation = m.Risk, m.SideEffect, m.Reversibility, m.Isolation
	c.Command, c.Timeout, c.Digest, c.spec = m.Backend.Command, m.Timeout, hex.EncodeToString(sum[:]), m
}
