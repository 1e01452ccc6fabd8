package apitype

import (
	"encoding/json"

	"bailey/internal/approve"
	"bailey/internal/localapi"
)

// All queries and commands of the gateway, by noun. internal/server/handlers.go has their handlers.
var (
	// agents
	ListAgents  = localapi.NewQuery[localapi.None, AgentList]("agents")
	ListTokens  = localapi.NewQuery[localapi.None, TokenList]("tokens")
	AddAgent    = localapi.NewCommand[TokenRequest, IssuedToken](AgentAddEvent)
	RotateAgent = localapi.NewCommand[TokenRequest, IssuedToken]("agent.rotate")
	RemoveAgent = localapi.NewCommand[AgentName, AgentName](AgentRemoveEvent)
	AddToken    = localapi.NewCommand[TokenRequest, IssuedToken](TokenAddEvent)
	RevokeToken = localapi.NewCommand[ID, Token](TokenRevokeEvent)

	// approvals; everybody may deny, and no interface for agents offers an answer
	ListQuestions        = localapi.NewQuery[QuestionRequest, QuestionList]("approvals")
	ApproveQuestion      = localapi.NewCommand[QuestionApproval, approve.Tally]("approve")
	DenyQuestion         = localapi.NewQuery[QuestionDenial, approve.Tally]("deny")
	RecordAnswerListener = localapi.NewCommand[AnswerListener, localapi.None](ApprovalsServeEvent)

	// standing grants
	ListGrants  = localapi.NewQuery[localapi.None, GrantList]("grants")
	DraftGrant  = localapi.NewQuery[GrantDraftRequest, GrantDraft]("grants.draft")
	GiveGrant   = localapi.NewCommand[GrantRequest, StandingGrant]("grants.give")
	RevokeGrant = localapi.NewCommand[ID, approve.Revoked]("grants.revoke")

	// notifications
	TestNotifications = localapi.NewCommand[localapi.None, NotifyTested](NotifyTestEvent)
	MakeNotifyKey     = localapi.NewCommand[NotifyKeyRequest, NotifyKeyed](NotifyKeyEvent)

	// the gateway
	ShowStatus  = localapi.NewQuery[localapi.None, Status]("status")
	ShowPresent = localapi.NewQuery[localapi.None, Present]("now")
	ShowMetrics = localapi.NewQuery[localapi.None, MetricsReply]("metrics")
	ListBudgets = localapi.NewQuery[localapi.None, Spendings]("budget")

	// the kill switch, which no interface for agents has; every user may stop calls
	KillCalls   = localapi.NewQuery[KillRequest, Killed]("kill")
	ShowKilled  = localapi.NewQuery[localapi.None, Killed]("killed") // for processes that must end when the switch is set
	ResumeCalls = localapi.NewCommand[localapi.None, Killed]("resume")

	// sessions; every caller may begin one, to group its calls
	BeginSession = localapi.NewQuery[localapi.None, OwnSession]("session")

	// capabilities
	ListCapabilities   = localapi.NewQuery[localapi.None, CapabilityList]("capabilities")
	SearchCapabilities = localapi.NewQuery[SearchRequest, SearchList]("search")
	ShowCapability     = localapi.NewQuery[ID, Capability]("capability")
	ExportTools        = localapi.NewQuery[ToolsRequest, json.RawMessage]("tools")
)
