package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/console"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// States of a host.
const (
	hostConnected = "connected"
	hostAway      = "away"    // it was connected, and is not now
	hostNew       = "new"     // it has never connected
	hostExpired   = "expired" // its token has expired, so it cannot connect
)

var hostStates = []string{hostConnected, hostAway, hostNew, hostExpired}

// hostView is a host as the pages show it.
type hostView struct {
	store.Host
	State      string
	Since      time.Time // of the state; zero if it is not known
	Heard      time.Time // when the host was heard last
	Registered fleet.Register
	Resources  fleet.ResourceReport // what it has for sandboxes, and permits to call here
	Capacity   string               // for sandboxes, in all
	Free       string               // for sandboxes, now; "" if it has none
	Stops      []store.Stop         // that concern the whole host
}

// viewHost describes a host. Its registration is what the host said about itself.
func (s *Server) viewHost(h store.Host, stops []store.Stop) hostView {
	v := hostView{Host: h, Heard: h.Used}
	json.Unmarshal([]byte(h.Registration), &v.Registered) // it was marshalled from a fleet.Register, or is ""
	since, heard, connected := s.Hosts.connectionOf(h.ID)
	switch {
	case connected:
		v.State, v.Since = hostConnected, since
	case !h.Expires.After(s.Now()):
		v.State, v.Since = hostExpired, h.Expires
	case h.Used.IsZero():
		v.State, v.Since = hostNew, h.Created
	default:
		v.State, v.Since = hostAway, h.Used
	}
	if heard.After(v.Heard) {
		v.Heard = heard
	}
	for _, p := range stops {
		if p.Ended.IsZero() && p.Agent == "" && (p.Host == "" || p.Host == h.ID) {
			v.Stops = append(v.Stops, p)
		}
	}
	return v
}

// formatCapacity writes what sandboxes may use, or "".
func formatCapacity(c fleet.Capacity) string {
	var parts []string
	if c.CPUs > 0 {
		parts = append(parts, fmt.Sprintf("%d processors", c.CPUs))
	}
	if c.Memory > 0 {
		parts = append(parts, console.FormatBytes(c.Memory)+" memory")
	}
	if c.Disk > 0 {
		parts = append(parts, console.FormatBytes(c.Disk)+" disk")
	}
	if c.Sandboxes > 0 {
		parts = append(parts, fmt.Sprintf("%d sandboxes", c.Sandboxes))
	}
	return strings.Join(parts, ", ")
}

// connectionOf returns since when a host is connected to this server, and when it was heard last.
func (h *Hosts) connectionOf(host string) (since, heard time.Time, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.live[host]
	if l == nil {
		return since, heard, false
	}
	return l.since, time.UnixMicro(l.heard.Load()), true
}

// hostsPage lists the gateways and the hosts of sandboxes.
type hostsPage struct {
	console.Frame
	Items             []hostView
	Total             int
	Name, Kind, State string // the filter
	Kinds, States     []string
	Manage            bool
}

func (s *Server) consoleHostRoutes() {
	member, people := Access{Role: store.Member, People: true}, Access{Role: store.Admin, People: true}
	addConsolePage(s, "GET", "/hosts", "hosts-page", member, s.showHostsPage)
	addConsolePage(s, "GET", "/hosts/{id}", "host-page", member, s.showHostPage)
	addConsolePage(s, "GET", "/sources", "sources-page", member, s.showSourcesPage)
	addConsolePage(s, "POST", "/hosts/{id}/remove", "remove-host-form", people, s.submitRemoveHost)
}

func (s *Server) showHostsPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	frame, err := s.frameFor(r, c, "/hosts", "Hosts")
	if err != nil {
		return err
	}
	ctx, q := r.Context(), r.URL.Query()
	all, err := s.viewHosts(ctx, r.PathValue(ofOrganisation))
	if err != nil {
		return err
	}
	p := hostsPage{Frame: frame, Total: len(all), Name: q.Get("name"), Kind: q.Get("kind"), State: q.Get("state"),
		Kinds: []string{store.Gateway, store.SandboxHost}, States: hostStates, Manage: c.Role >= store.Admin}
	for _, h := range all {
		if strings.Contains(strings.ToLower(h.Name), strings.ToLower(p.Name)) && (p.Kind == "" || p.Kind == h.Kind) &&
			(p.State == "" || p.State == h.State) {
			p.Items = append(p.Items, h)
		}
	}
	s.writePage(w, "hosts", http.StatusOK, p)
	return nil
}

func (s *Server) viewHosts(ctx context.Context, organisation string) ([]hostView, error) {
	all, err := s.Store.Hosts(ctx, organisation)
	if err != nil {
		return nil, err
	}
	stops, err := s.Store.Stops(ctx, organisation)
	if err != nil {
		return nil, err
	}
	resources, err := s.Store.ResourcesOf(ctx, organisation)
	var views []hostView
	for _, h := range all {
		v := s.viewHost(h, stops)
		v.Capacity = "runs no sandboxes"
		for _, r := range resources {
			if r.Host == h.ID {
				v.Resources = readResources(r.Body)
				v.Capacity = cmp.Or(formatCapacity(v.Resources.Capacity), v.Capacity)
				v.Free = formatCapacity(v.Resources.Free)
			}
		}
		views = append(views, v)
	}
	return views, err
}

// hostPage is one host.
type hostPage struct {
	console.Frame
	Host      hostView
	Record    *record // nil if the server has no copy of its ledger
	Questions []approvalItem
	Manage    bool
}

func (s *Server) showHostPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	ctx := r.Context()
	in := InOrganisationByID{Organisation: r.PathValue(ofOrganisation), ID: r.PathValue("id")}
	all, err := s.viewHosts(ctx, in.Organisation)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(h hostView) bool { return h.ID == in.ID })
	if at < 0 {
		return bailey.NotFound.New("there is no such host", "see the list of hosts")
	}
	frame, err := s.frameFor(r, c, "/hosts", all[at].Name)
	if err != nil {
		return err
	}
	p := hostPage{Frame: frame, Host: all[at], Manage: c.Role >= store.Admin}
	recorded, err := s.showRecord(ctx, c, &in)
	switch {
	case err == nil:
		p.Record = &recorded.Body
	case !errors.Is(err, bailey.NotFound):
		return err
	}
	open, err := s.Store.Questions(ctx, in.Organisation, store.QuestionFilter{State: store.QuestionOpen, Host: in.ID})
	if err != nil {
		return err
	}
	for _, q := range open {
		p.Questions = append(p.Questions, newApprovalItem(q, map[string]string{q.Host: p.Host.Name}, false))
	}
	s.writePage(w, "host", http.StatusOK, p)
	return nil
}

// checkConfirmed refuses a form that changes much if its box was not ticked.
func checkConfirmed(r *http.Request) error {
	if r.PostFormValue("confirm") != "yes" {
		return bailey.Invalid.New("the change was not confirmed, so nothing was changed", "go back, and tick the box")
	}
	return nil
}

func (s *Server) submitRemoveHost(w http.ResponseWriter, r *http.Request, c *Caller) error {
	if err := checkConfirmed(r); err != nil {
		return err
	}
	in := InOrganisationByID{Organisation: r.PathValue(ofOrganisation), ID: r.PathValue("id")}
	if _, err := recordChange(r.Context(), s, "remove-host", c, &in, s.removeHost); err != nil {
		return err
	}
	http.Redirect(w, r, "/o/"+in.Organisation+"/hosts", http.StatusSeeOther)
	return nil
}

// settingsPage has the organisation, what is stopped, and how people sign in.
type settingsPage struct {
	console.Frame
	ID               string // of the organisation
	Stopped, Resumed []stopView
	Hosts            []store.Host // that can be stopped
	Providers        []store.Provider
	Manage, Own      bool
}

// stopView is a stop with the name of its host.
type stopView struct {
	store.Stop
	HostName string
}

func (s *Server) consoleSettingRoutes() {
	member, admin := Access{Role: store.Member, People: true}, Access{Role: store.Admin, People: true}
	addConsolePage(s, "GET", "/settings", "settings-page", member, s.showSettingsPage)
	addConsolePage(s, "POST", "/settings/name", "rename-form", admin, s.submitRename)
	addConsolePage(s, "POST", "/settings/delete", "delete-organisation-form", Access{Role: store.Owner, People: true},
		s.submitDeleteOrganisation)
	addConsolePage(s, "POST", "/stops", "stop-form", admin, s.submitStop)
	addConsolePage(s, "POST", "/stops/{id}/end", "end-stop-form", admin, s.submitEndStop)
}

func (s *Server) showSettingsPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	ctx, organisation := r.Context(), r.PathValue(ofOrganisation)
	frame, err := s.frameFor(r, c, "/settings", "Settings")
	if err != nil {
		return err
	}
	p := settingsPage{Frame: frame, ID: organisation, Manage: c.Role >= store.Admin, Own: c.Role >= store.Owner}
	stops, err := s.Store.Stops(ctx, organisation)
	if err != nil {
		return err
	}
	names, err := s.hostNames(ctx, organisation)
	if err != nil {
		return err
	}
	for _, stop := range stops {
		v := stopView{stop, cmp.Or(names[stop.Host], stop.Host)}
		if stop.Ended.IsZero() {
			p.Stopped = append(p.Stopped, v)
		} else if len(p.Resumed) < 20 {
			p.Resumed = append(p.Resumed, v)
		}
	}
	all, err := s.Store.Hosts(ctx, organisation)
	if err != nil {
		return err
	}
	p.Hosts = slices.DeleteFunc(all, func(h store.Host) bool { return h.Kind != store.Gateway })
	if p.Providers, err = s.Store.Providers(ctx); err != nil {
		return err
	}
	s.writePage(w, "settings", http.StatusOK, p)
	return nil
}

func (s *Server) submitRename(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := inOrganisationWith[Named]{InOrganisation{r.PathValue(ofOrganisation)}, Named{r.PostFormValue("name")}}
	if _, err := recordChange(r.Context(), s, "rename-organisation", c, &in, s.renameOrganisation); err != nil {
		return err
	}
	http.Redirect(w, r, "/o/"+in.Organisation+"/settings", http.StatusSeeOther)
	return nil
}

// submitDeleteOrganisation wants the name of the organisation typed: nothing of it remains.
func (s *Server) submitDeleteOrganisation(w http.ResponseWriter, r *http.Request, c *Caller) error {
	frame, err := s.frameFor(r, c, "/settings", "Settings")
	if err != nil {
		return err
	}
	if r.PostFormValue("name") != frame.Organisation {
		return bailey.Invalid.New("the name is not that of this organisation, so nothing was deleted",
			"go back, and type the name exactly")
	}
	in := InOrganisation{r.PathValue(ofOrganisation)}
	if _, err := recordChange(r.Context(), s, "delete-organisation", c, &in, s.deleteOrganisation); err != nil {
		return err
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// submitStop stops an agent, a gateway, or everything, and returns to the page that has the form.
func (s *Server) submitStop(w http.ResponseWriter, r *http.Request, c *Caller) error {
	if err := checkConfirmed(r); err != nil {
		return err
	}
	in := inOrganisationWith[NewStop]{InOrganisation{r.PathValue(ofOrganisation)}, NewStop{
		Host:  r.PostFormValue("host"),
		Agent: strings.TrimSpace(r.PostFormValue("agent")), Reason: strings.TrimSpace(r.PostFormValue("reason"))}}
	if err := in.Body.checkScope(r.PostFormValue("scope")); err != nil {
		return err
	}
	if _, err := recordChange(r.Context(), s, "add-stop", c, &in, s.addStop); err != nil {
		return err
	}
	s.returnToForm(w, r, in.Organisation, in.Body.Host)
	return nil
}

// checkScope validates a stop of a form, whose inputs no schema checks. The scope must be the one that the fields
// describe, so that an empty field does not stop everything.
func (n NewStop) checkScope(scope string) error {
	switch {
	case n.Reason == "" || len(n.Reason) > 200:
		return bailey.Invalid.New("a stop needs a reason of at most 200 characters", "go back, and write the reason")
	case len(n.Agent) > 100 || len(n.Host) > 40:
		return bailey.Invalid.New("the name of the agent or the host is too long", "")
	case scope == "agent" && n.Agent == "":
		return bailey.Invalid.New("the name of the agent is missing", "go back, and write it")
	case scope == "host" && n.Host == "":
		return bailey.Invalid.New("the gateway is missing", "go back, and choose one")
	case scope == "everything" && (n.Agent != "" || n.Host != ""):
		return bailey.Invalid.New("a stop of everything names no agent and no gateway",
			"go back, and choose one of them")
	case scope != "agent" && scope != "host" && scope != "everything":
		return bailey.Invalid.New("it is not known what must be stopped", "go back, and choose")
	}
	return nil
}

func (s *Server) submitEndStop(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := InOrganisationByID{Organisation: r.PathValue(ofOrganisation), ID: r.PathValue("id")}
	if _, err := recordChange(r.Context(), s, "end-stop", c, &in, s.endStop); err != nil {
		return err
	}
	s.returnToForm(w, r, in.Organisation, r.PostFormValue("host"))
	return nil
}

// returnToForm sends the browser back to the page of a form: that of a host, of the tokens, or the settings. The
// address is made here, and never taken from the request.
func (s *Server) returnToForm(w http.ResponseWriter, r *http.Request, organisation, host string) {
	to := "/o/" + organisation + "/settings"
	switch r.PostFormValue("from") {
	case "host":
		all, err := s.Store.Hosts(r.Context(), organisation)
		if at := slices.IndexFunc(all, func(h store.Host) bool { return h.ID == host }); err == nil && at >= 0 {
			to = "/o/" + organisation + "/hosts/" + all[at].ID
		}
	case "tokens":
		to = "/o/" + organisation + "/tokens"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// sourcesPage lists the source hosts of the gateways.
type sourcesPage struct {
	console.Frame
	Items         []sourceItem
	Total         int
	Name, Gateway string // the filter
	Gateways      []string
}

// showSourcesPage lists what the gateways report.
func (s *Server) showSourcesPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	frame, err := s.frameFor(r, c, "/sources", "Source hosts")
	if err != nil {
		return err
	}
	all, err := s.listSources(r.Context(), c, &InOrganisation{r.PathValue(ofOrganisation)})
	if err != nil {
		return err
	}
	q := r.URL.Query()
	p := sourcesPage{Frame: frame, Total: len(all.Body.Items), Name: q.Get("name"), Gateway: q.Get("gateway")}
	for _, i := range all.Body.Items {
		if !slices.Contains(p.Gateways, i.HostName) {
			p.Gateways = append(p.Gateways, i.HostName)
		}
		if strings.Contains(i.Name, p.Name) && (p.Gateway == "" || p.Gateway == i.HostName) {
			p.Items = append(p.Items, i)
		}
	}
	s.writePage(w, "sources", http.StatusOK, p)
	return nil
}
