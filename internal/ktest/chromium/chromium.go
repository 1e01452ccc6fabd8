// Package chromium runs pages in a real browser, Debian's chromium-headless-shell, for tests. The tests of a package
// share one browser; each page has cookies and storage of its own. A message on the console, a script that fails, a
// dialog, and a violation of the content security policy fail the test.
package chromium

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"bailey/internal/ktest"
)

// MinimumVersion is the oldest major version of Chromium with which the tests are meaningful: it has the parts of the
// protocol and of CSS that they use.
const MinimumVersion = 130

// Program is the name of the browser in PATH.
const Program = "chromium-headless-shell"

// shared is the browser of this test process.
var shared struct {
	mu    sync.Mutex
	tried bool
	err   error
	ctx   context.Context
	stop  func()
}

// With runs the tests of a package, and ends the browser that they started. It returns the exit code.
func With(run func() int) int {
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.stop != nil {
			shared.stop()
		}
	}()
	return run()
}

// flags are those of the browser: no window, and no traffic of its own. Names of other machines do not resolve.
var flags = []chromedp.ExecAllocatorOption{
	chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
	chromedp.Flag("disable-quic", true),
	chromedp.Flag("disable-background-networking", true),
	chromedp.Flag("disable-component-update", true),
	chromedp.Flag("disable-sync", true),
	chromedp.Flag("disable-extensions", true),
	chromedp.Flag("disable-dev-shm-usage", true),
	chromedp.Flag("disable-background-timer-throttling", true),
	chromedp.Flag("disable-backgrounding-occluded-windows", true),
	chromedp.Flag("disable-renderer-backgrounding", true),
	chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"),
	chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"),
	chromedp.Flag("no-proxy-server", true),
	chromedp.Flag("force-color-profile", "srgb"),
	chromedp.Flag("hide-scrollbars", false),
	chromedp.Flag("mute-audio", true),
}

// startBrowser starts the browser, and checks its version.
func startBrowser() (ctx context.Context, stop func(), err error) {
	program, err := exec.LookPath(Program)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, nil, err
	}
	options := append(flags, chromedp.ExecPath(program), chromedp.UserDataDir(dir), chromedp.CombinedOutput(io.Discard))
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}),
		chromedp.WithLogf(func(string, ...any) {}))
	stop = func() {
		chromedp.Cancel(ctx)
		cancel()
		cancelAllocator()
		os.RemoveAll(dir)
	}
	if err = chromedp.Do(ctx); err == nil {
		err = checkVersion(ctx)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return ctx, stop, nil
}

func checkVersion(ctx context.Context) error {
	v, err := chromedp.CallBrowser(ctx, browser.GetVersion, cdp.Empty{})
	if err != nil {
		return err
	}
	major, err := majorVersion(v.Product)
	if err == nil && major < MinimumVersion {
		err = fmt.Errorf("%s is too old, want version %d or newer", v.Product, MinimumVersion)
	}
	return err
}

// majorVersion reads a product such as HeadlessChrome/156.0.8078.108.
func majorVersion(product string) (int, error) {
	_, version, found := strings.Cut(product, "/")
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if !found || err != nil {
		return 0, fmt.Errorf("the browser says that it is %q, which has no version", product)
	}
	return n, nil
}

// Page is a tab with cookies and storage of its own.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string
	url    string // of the last navigation
	status int    // of its document
	weight int64  // bytes over the wire since then

	media map[string]string // the features that are set
}

// Open opens a page that is empty. It skips the test if the browser is missing. If the page has faults when the test
// ends, the test fails.
func Open(t testing.TB) *Page {
	t.Helper()
	ktest.Long(t)
	shared.mu.Lock()
	if !shared.tried {
		shared.tried = true
		shared.ctx, shared.stop, shared.err = startBrowser()
	}
	err := shared.err
	shared.mu.Unlock()
	if err != nil {
		ktest.Missing(t, "chromium", err)
	}
	p := &Page{t: t, media: map[string]string{}}
	ctx, cancel := chromedp.NewContext(shared.ctx, chromedp.WithNewBrowserContext(),
		chromedp.WithListener(p.receiveEvent))
	p.ctx = ctx
	t.Cleanup(func() {
		if f := p.Faults(); len(f) > 0 && !t.Failed() {
			t.Errorf("the page has %d faults:\n%s", len(f), strings.Join(f, "\n"))
		}
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	Call(p, audits.Enable, cdp.Empty{})
	Call(p, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	Call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	p.Size(1280, 800)
	return p
}

// patience is how long a step in the browser may take on a busy machine.
const patience = time.Minute

// Call runs a command of the DevTools protocol on the page.
func Call[P, R any](p *Page, command cdp.Command[P, R], parameters P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	r, err := chromedp.Call(ctx, command, parameters)
	if err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
	return r
}

// Run runs an action of chromedp on the page.
func Run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("on %s: %v", p.url, err)
	}
	return v
}

// Eval returns the value of an expression in the page. It waits for a promise.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return Run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// receiveEvent collects faults and the weight. It must not call the browser.
func (p *Page) receiveEvent(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.addFault("console: %s", argumentsText(e.Args))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.addFault("exception: %s", text)
	case *log.EventEntryAdded:
		// The status of the document itself, for example 404, is for the test to judge.
		ofDocument := e.Entry.Source == log.EntrySourceNetwork && e.Entry.URL == p.url
		if e.Entry.Level == log.EntryLevelError && !ofDocument {
			p.addFault("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if d := e.Issue.Details; d != nil && d.ContentSecurityPolicyIssueDetails != nil {
			c := d.ContentSecurityPolicyIssueDetails
			p.addFault("content security policy: %s %s", c.ViolatedDirective, c.BlockedURL)
		}
	case *page.EventJavascriptDialogOpening:
		p.addFault("dialog: %s", e.Message)
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument && p.status == 0 {
			p.status = int(e.Response.Status)
		}
	case *network.EventLoadingFinished:
		p.weight += int64(e.EncodedDataLength)
	}
}

func (p *Page) addFault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf("%s: ", p.url)+fmt.Sprintf(format, args...))
}

func argumentsText(args []*runtime.RemoteObject) string {
	var words []string
	for _, a := range args {
		if a.Description != "" {
			words = append(words, a.Description)
		} else {
			words = append(words, string(a.Value))
		}
	}
	return strings.Join(words, " ")
}

// Faults returns the faults since the last call, and forgets them.
func (p *Page) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults
	p.faults = nil
	return f
}

// Go opens a URL, waits until it is complete, and returns the status of its document.
func (p *Page) Go(url string) int {
	p.t.Helper()
	p.mu.Lock()
	p.url, p.status, p.weight = url, 0, 0
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.Run(ctx, chromedp.NavigateResponse(url))
	if err != nil {
		p.t.Fatalf("open %s: %v", url, err)
	}
	if response == nil {
		return 0
	}
	return int(response.Status)
}

// Until waits until an expression in the page is true. A navigation of the page in the meantime is no error.
func (p *Page) Until(expression string) {
	p.t.Helper()
	end := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		cancel()
		if err == nil && is {
			return
		}
		if time.Now().After(end) || errors.Is(p.ctx.Err(), context.Canceled) {
			p.t.Fatalf("on %s: not true within %v: %s (%v)\n%s", p.URL(), patience, expression, err, p.Text())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// URL returns the address of the page.
func (p *Page) URL() string { return Eval[string](p, "location.href") }

// Text returns the text of the page as a person reads it.
func (p *Page) Text() string { return Eval[string](p, "document.body.innerText") }

// Weight returns how many bytes came over the wire since the last navigation, without a cache.
func (p *Page) Weight() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weight
}

// Complete returns how long the last navigation took until the page was complete.
func (p *Page) Complete() time.Duration {
	ms := Eval[float64](p, "performance.getEntriesByType('navigation')[0].loadEventEnd")
	return time.Duration(ms * float64(time.Millisecond))
}

// Size sets the width and the height of the window, in CSS pixels.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	Call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height,
		DeviceScaleFactor: 1})
}

// Prefer sets a media feature, for example prefers-color-scheme to dark.
func (p *Page) Prefer(feature, value string) {
	p.t.Helper()
	p.media[feature] = value
	var all []*emulation.MediaFeature
	for name, value := range p.media {
		all = append(all, &emulation.MediaFeature{Name: name, Value: value})
	}
	Call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: all})
}

// Scripts permits the scripts of the next pages, or disables them.
func (p *Page) Scripts(on bool) {
	p.t.Helper()
	Call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// Zone sets the time zone, for example Asia/Tokyo.
func (p *Page) Zone(name string) {
	p.t.Helper()
	Call(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
}

// SetCookies gives the page cookies of a URL, for example those with which a client of the test is signed in.
func (p *Page) SetCookies(url string, cookies []*http.Cookie) {
	p.t.Helper()
	for _, c := range cookies {
		Call(p, network.SetCookie, network.SetCookieParams{Name: c.Name, Value: c.Value, URL: url, Path: "/",
			HTTPOnly: new(true), SameSite: network.CookieSameSiteStrict})
	}
}

// Cookies returns the cookies of a URL.
func (p *Page) Cookies(url string) []*network.Cookie {
	p.t.Helper()
	return Call(p, network.GetCookies, network.GetCookiesParams{URLs: []string{url}}).Cookies
}

// Authenticator is a virtual authenticator for passkeys.
type Authenticator struct {
	p  *Page
	id webauthn.AuthenticatorID
}

// AddAuthenticator gives the page an authenticator that verifies its user and answers at once.
func (p *Page) AddAuthenticator() *Authenticator {
	p.t.Helper()
	Call(p, webauthn.Enable, webauthn.EnableParams{})
	r := Call(p, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
			Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true,
			IsUserVerified: true, AutomaticPresenceSimulation: true}})
	return &Authenticator{p, r.AuthenticatorID}
}

// Credentials returns the passkeys that the authenticator holds.
func (a *Authenticator) Credentials() []*webauthn.Credential {
	a.p.t.Helper()
	return Call(a.p, webauthn.GetCredentials, webauthn.GetCredentialsParams{AuthenticatorID: a.id}).Credentials
}

// Refuse makes the authenticator fail to verify its user from now on, or verify it again.
func (a *Authenticator) Refuse(refuses bool) {
	a.p.t.Helper()
	Call(a.p, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: a.id, IsUserVerified: !refuses})
}
