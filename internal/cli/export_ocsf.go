package cli

import (
	"encoding/json"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// ocsfVersion is the version of the Open Cybersecurity Schema Framework that defines the class API Activity
// (github.com/ocsf/ocsf-schema, events/application/api_activity.json).
const ocsfVersion = "1.6.0"

// Identifiers of the class. activity_id is Other, because a receipt does not say whether its capability, for example,
// creates or reads.
const (
	ocsfApplication = 6
	ocsfAPIActivity = 6003
	ocsfOther       = 99
)

// ocsf is a receipt as an API Activity event. Fields that the class does not have are in Unmapped.
type ocsf struct {
	ActivityID   int          `json:"activity_id"`
	ActivityName string       `json:"activity_name"`
	CategoryUID  int          `json:"category_uid"`
	CategoryName string       `json:"category_name"`
	ClassUID     int          `json:"class_uid"`
	ClassName    string       `json:"class_name"`
	TypeUID      int          `json:"type_uid"`
	TypeName     string       `json:"type_name"`
	SeverityID   int          `json:"severity_id"`
	StatusID     int          `json:"status_id"`
	Status       string       `json:"status"`
	StatusDetail string       `json:"status_detail,omitempty"`
	Time         int64        `json:"time"` // milliseconds since 1970, like all OCSF times
	StartTime    int64        `json:"start_time"`
	EndTime      int64        `json:"end_time,omitempty"`
	Duration     *int64       `json:"duration,omitempty"`
	Message      string       `json:"message"`
	Metadata     ocsfMetadata `json:"metadata"`
	Actor        ocsfActor    `json:"actor"`
	API          ocsfAPI      `json:"api"`
	SrcEndpoint  ocsfEndpoint `json:"src_endpoint"`
	Unmapped     ocsfUnmapped `json:"unmapped"`
}

type ocsfMetadata struct {
	Version      string      `json:"version"`
	Product      ocsfProduct `json:"product"`
	UID          string      `json:"uid"`
	LogName      string      `json:"log_name"`
	Sequence     uint64      `json:"sequence"`
	OriginalTime string      `json:"original_time"`
}

type ocsfProduct struct {
	Name       string `json:"name"`
	VendorName string `json:"vendor_name"`
	Version    string `json:"version"`
}

type ocsfActor struct {
	AppName string      `json:"app_name"` // the agent
	User    *ocsfUser   `json:"user,omitempty"`
	Session ocsfSession `json:"session"`
}

type ocsfUser struct {
	Name string `json:"name"`
}

type ocsfSession struct {
	UID string `json:"uid"`
}

type ocsfAPI struct {
	Operation string        `json:"operation"`
	Request   ocsfRequest   `json:"request"`
	Response  *ocsfResponse `json:"response,omitempty"`
}

type ocsfRequest struct {
	UID  string          `json:"uid"`
	Data json.RawMessage `json:"data,omitempty"`
}

type ocsfResponse struct {
	Code    *int   `json:"code,omitempty"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
}

type ocsfEndpoint struct {
	Hostname string `json:"hostname,omitempty"`
	Name     string `json:"name"` // the interface of the call
}

// ocsfUnmapped is the position of the receipt in the ledger, and the receipt itself.
type ocsfUnmapped struct {
	Ledger  ocsfLedger      `json:"ledger"`
	Intent  bailey.Intent   `json:"intent"`
	Outcome *bailey.Outcome `json:"outcome"`
}

type ocsfLedger struct {
	Origin      string  `json:"origin"`
	Size        uint64  `json:"size"`
	Seq         uint64  `json:"seq"`
	Hash        string  `json:"hash"`
	OutcomeSeq  *uint64 `json:"outcome_seq"`
	OutcomeHash *string `json:"outcome_hash"`
}

func newOCSF(r exported) ocsf {
	in := r.Intent
	e := ocsf{
		ActivityID: ocsfOther, ActivityName: "Call", CategoryUID: ocsfApplication, CategoryName: "Application Activity",
		ClassUID: ocsfAPIActivity, ClassName: "API Activity", TypeUID: ocsfAPIActivity*100 + ocsfOther, TypeName: "API Activity: Other",
		Status: string(r.Status), Time: in.StartedAt.UnixMilli(), StartTime: in.StartedAt.UnixMilli(),
		Message: string(in.Capability) + ": " + string(r.Status) + apitype.DryRun(in.DryRun),
		Metadata: ocsfMetadata{Version: ocsfVersion, Product: ocsfProduct{"Bailey", "Bailey", apitype.Version}, UID: string(r.Receipt),
			LogName: "ledger", Sequence: r.Seq, OriginalTime: csvCell(in.StartedAt)},
		Actor:       ocsfActor{AppName: in.Agent, Session: ocsfSession{string(in.Session)}},
		API:         ocsfAPI{Operation: string(in.Capability), Request: ocsfRequest{UID: string(r.Receipt), Data: in.Input}},
		SrcEndpoint: ocsfEndpoint{Hostname: in.Host, Name: in.Door},
		Unmapped:    ocsfUnmapped{ocsfLedger{r.Origin, r.Size, r.Seq, r.Hash.String(), r.OutcomeSeq, nil}, in, r.Outcome},
	}
	e.StatusID, e.SeverityID = ocsfStatus(r.Status)
	if in.Person != "" {
		e.Actor.User = &ocsfUser{in.Person}
	}
	if o := r.Outcome; o != nil {
		took, hash := o.EndedAt.Sub(in.StartedAt).Milliseconds(), r.OutcomeHash.String()
		e.EndTime, e.Duration, e.StatusDetail, e.Unmapped.Ledger.OutcomeHash = o.EndedAt.UnixMilli(), &took, o.Reason, &hash
		e.API.Response = &ocsfResponse{Code: o.ExitCode, Message: o.Reason}
		if r.Status != bailey.OK {
			e.API.Response.Error = string(r.Status)
		}
	}
	return e
}

// ocsfStatus returns status_id (0 unknown, 1 success, 2 failure, 99 other) and severity_id (1 informational, 2 low, 3
// medium).
func ocsfStatus(s bailey.Status) (status, severity int) {
	switch s {
	case bailey.OK:
		return 1, 1
	case bailey.Refused, bailey.Failed:
		return 2, 2
	case bailey.Killed, bailey.Interrupted:
		return 2, 3
	case bailey.Pending:
		return ocsfOther, 1
	}
	return 0, 1
}
