package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// helper asks a program of the operator for credentials: the adapter for every issuer that this package does not know.
// The broker starts no programs. Program bailey-helper, as a user of its own, runs the helper in a jail.
type helper struct {
	socket string
	uid    int
	job    HelperJob
	files  map[string]string // variable → file of the broker
	limits map[string]string // of one call
	narrow bool              // the helper follows limits
}

// The kinds of frames between broker and bailey-helper. The broker sends a [HelperJob], a value for each of its
// files in order, and the input of the program as a value. The answer is a [HelperExit] and the output as a value, or a
// refusal.
const (
	HelperAsk    = 'p'
	HelperValue  = aValue
	HelperDone   = answerOK
	HelperFailed = answerErr
)

// Limits of a helper.
const (
	MaxHelperJob    = 64 << 10 // bytes of the frame
	MaxHelperOutput = 2 * MaxValue
	MaxHelperTime   = issuerTimeout
)

// HelperJob is a program that bailey-helper runs in a jail. The jail shows the program, the directories in Read, and the
// files. It reaches the endpoints in Egress alone.
type HelperJob struct {
	Version int      `json:"version"`
	Program string   `json:"program"` // absolute path
	Digest  string   `json:"digest"`  // SHA-256 of the program, hex
	Args    []string `json:"args,omitempty"`
	Read    []string `json:"read,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	Private bool     `json:"private,omitempty"` // the places in Egress may have addresses that are not public
	Files   []string `json:"files,omitempty"`   // variables that contain the path of a file with a value
}

// HelperExit describes how a program ended.
type HelperExit struct {
	Code int `json:"code"`
}

// helperInput is the standard input of a helper.
type helperInput struct {
	Version int               `json:"version"`
	Action  string            `json:"action"` // mint or revoke
	Seconds int64             `json:"seconds,omitempty"`
	Limits  map[string]string `json:"limits,omitempty"`
	ID      string            `json:"id,omitempty"`     // revoke
	Handle  string            `json:"handle,omitempty"` // revoke
}

// helperOutput is the standard output of a helper that mints: one JSON object.
type helperOutput struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires"`
	ID      string    `json:"id"`
	Handle  string    `json:"handle"` // if it is not empty, the credential can be revoked with it
}

func makeExec(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Socket  string            `yaml:"socket"`
		UID     *int              `yaml:"uid"`
		Program string            `yaml:"program"`
		SHA256  string            `yaml:"sha256"`
		Args    []string          `yaml:"args"`
		Read    []string          `yaml:"read"`
		Egress  []string          `yaml:"egress"`
		Private bool              `yaml:"private"`
		Files   map[string]string `yaml:"files"`
		Narrow  bool              `yaml:"narrow"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	switch {
	case said.Socket == "" || said.UID == nil || *said.UID < 0:
		return nil, "", errors.New("it needs socket and uid: those of bailey-helper")
	case !strings.HasPrefix(said.Program, "/"):
		return nil, "", errors.New("it needs program, an absolute path")
	case len(said.SHA256) != 64 || strings.Trim(said.SHA256, "0123456789abcdef") != "":
		return nil, "", errors.New("it needs sha256, the digest of the program as sha256sum prints it")
	}
	h := &helper{socket: resolveIn(dir, said.Socket), uid: *said.UID, files: map[string]string{}, narrow: said.Narrow,
		job: HelperJob{Version: version, Program: said.Program, Digest: said.SHA256, Args: said.Args, Read: said.Read,
			Egress: said.Egress, Private: said.Private, Files: slices.Sorted(maps.Keys(said.Files))}}
	for _, name := range h.job.Files {
		if !validName(name) || isBarred(name) {
			return nil, "", fmt.Errorf("files: %.60q is not a variable for a file", name)
		}
		h.files[name] = resolveIn(dir, said.Files[name])
	}
	for _, place := range said.Egress {
		if _, err := bailey.ParseEndpoint(place); err != nil {
			return nil, "", fmt.Errorf("egress: %w", err)
		}
	}
	return h, fmt.Sprintf("exec %s (sha256 %.12s…), uid %d", said.Program, said.SHA256, *said.UID), nil
}

// narrowTo passes the limits to the helper. The table must say that the helper follows them, because the terms of the
// loan say so too.
func (h *helper) narrowTo(limits map[string]string) (Adapter, string, error) {
	if !h.narrow {
		return h, "", nil
	}
	less := *h
	less.limits = limits
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(limits)) {
		words = append(words, kind+" "+limits[kind])
	}
	return &less, "the helper narrows to " + strings.Join(words, ", "), nil
}

func (h *helper) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	out, err := h.runHelper(ctx, helperInput{Version: version, Action: "mint", Seconds: int64(ttl / time.Second), Limits: h.limits})
	if err != nil {
		return Minted{}, err
	}
	defer clear(out)
	var got helperOutput
	if err := decodeStrict(out, &got); err != nil {
		return Minted{}, h.outputError("is not one JSON object with value and expires, and perhaps id and handle")
	}
	m := Minted{Value: []byte(got.Value), ID: got.ID, Until: got.Expires.UTC()}
	if got.Handle != "" {
		m.Handle = []byte(got.Handle)
	}
	switch left := time.Until(got.Expires); {
	case left <= 0 || left > maxTTL:
		return m.withoutLending(), h.outputError("has no expires within the next " + maxTTL.String())
	case len(got.ID) > 128 || strings.ContainsFunc(got.ID, func(r rune) bool { return !isTokenRune(r) }):
		m.ID = ""
		return m.withoutLending(), h.outputError("has an id that is not a word of at most 128 characters")
	}
	return m, nil
}

// withoutLending returns m without its value, so that it can only be revoked.
func (m Minted) withoutLending() Minted {
	clear(m.Value)
	m.Value = nil
	return m
}

func (h *helper) outputError(fault string) error {
	return unavailableError(nil, "correct the helper; docs/broker.md shows what it must print", "the output of %s %s", h.job.Program, fault)
}

func (h *helper) Revoke(ctx context.Context, id string, handle []byte) error {
	if handle == nil {
		return nil
	}
	out, err := h.runHelper(ctx, helperInput{Version: version, Action: "revoke", ID: id, Handle: string(handle)})
	clear(out)
	return err
}

// runHelper returns the output of the program. Its standard error is in the log of bailey-helper.
func (h *helper) runHelper(ctx context.Context, in helperInput) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	conn, err := peer.DialUID(h.socket, h.uid)
	if err != nil {
		return nil, unavailableError(err, "start bailey-helper, or correct socket and uid in "+TableName,
			"bailey-helper at %s does not answer", h.socket)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := h.sendJob(conn, in); err != nil {
		return nil, err
	}
	kind, payload, err := conn.ReadFrameWithin(MaxHelperJob)
	switch {
	case err != nil || kind != HelperDone && kind != HelperFailed:
		return nil, unavailableError(context.Cause(ctx), "look at the log of bailey-helper", "%s gave no answer", h.job.Program)
	case kind == HelperFailed:
		var r refusal
		if err := decodeStrict(payload, &r); err != nil {
			return nil, err
		}
		return nil, bailey.Kind(r.Kind).New(r.Message, r.Hint)
	}
	var exit HelperExit
	if err := decodeStrict(payload, &exit); err != nil {
		return nil, err
	}
	kind, out, err := conn.ReadFrameWithin(MaxHelperOutput)
	if err != nil || kind != HelperValue {
		return nil, unavailableError(nil, "look at the log of bailey-helper", "%s gave no answer", h.job.Program)
	}
	if exit.Code != 0 {
		clear(out)
		return nil, unavailableError(nil, "look at the log of bailey-helper", "%s ended with exit code %d", h.job.Program, exit.Code)
	}
	return out, nil
}

func (h *helper) sendJob(conn *peer.Conn, in helperInput) error {
	if err := conn.WriteJSON(HelperAsk, h.job); err != nil {
		return connLostError(err)
	}
	for _, name := range h.job.Files {
		value, err := readPrivate(h.files[name], MaxValue)
		if err != nil {
			return err
		}
		err = conn.WriteFrame(HelperValue, value)
		clear(value)
		if err != nil {
			return connLostError(err)
		}
	}
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	defer clear(text)
	if err := conn.WriteFrame(HelperValue, text); err != nil {
		return connLostError(err)
	}
	return nil
}

// ReadHelperJob decodes and checks a job strictly.
func ReadHelperJob(payload []byte) (job HelperJob, err error) {
	if err := decodeStrict(payload, &job); err != nil {
		return HelperJob{}, err
	}
	long := len(job.Args) > maxWants || len(job.Read) > maxWants || len(job.Egress) > maxWants || len(job.Files) > maxWants
	bad := slices.ContainsFunc(job.Files, func(name string) bool { return !validName(name) || isBarred(name) })
	if job.Version != version || long || bad || !strings.HasPrefix(job.Program, "/") || len(job.Digest) != 64 {
		return HelperJob{}, malformedError(nil)
	}
	return job, nil
}
