package apitype

import (
	"encoding/json"

	"bailey/internal/agenthook"
	"bailey/internal/approve"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/policy/review"
	"bailey/internal/receipts"
	"bailey/internal/settings"
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

	// packs
	ListPacks          = localapi.NewQuery[PackSearch, PackRows](PacksQuery)
	ShowPack           = localapi.NewQuery[PackName, PackShown]("pack")
	ListPackKeys       = localapi.NewQuery[localapi.None, []packstore.TrustedKey]("pack.keys")
	ComparePack        = localapi.NewQuery[PackRequest, PackProposal]("pack.compare")
	InstallPack        = localapi.NewCommand[PackRequest, PackProposal](packstore.PackInstallEvent)
	UninstallPack      = localapi.NewCommand[PackName, packstore.Installed](packstore.PackUninstallEvent)
	TrustPackKey       = localapi.NewCommand[PackKey, KeyChanged](packstore.PackTrustEvent)
	UntrustPackKey     = localapi.NewCommand[PackKeyName, KeyChanged](packstore.PackUntrustEvent)
	PublishPack        = localapi.NewCommand[PackPublication, packstore.Installed](packstore.PackPublishEvent)
	OnboardPack        = localapi.NewCommand[OnboardQuery, localapi.None](PackOnboardEvent)
	ListProgramChanges = localapi.NewQuery[ID, Changed]("changes")
	RepinPrograms      = localapi.NewCommand[RepinRequest, Changed]("repin")

	// policy
	ComparePolicy     = localapi.NewQuery[PolicyRequest, Proposed]("policy.compare")
	ShowPolicy        = localapi.NewQuery[PolicyName, PolicyText]("policy.show")
	AddRule           = localapi.NewQuery[review.Wish, RuleAdded]("policy.rule")
	ApplyPolicy       = localapi.NewCommand[PolicyRequest, Proposed](PolicyEvent)
	ExplainCall       = localapi.NewQuery[localapi.CallQuery, review.Explanation]("explain")
	ReconsiderReceipt = localapi.NewQuery[ID, Reconsidered]("reconsider")

	// hooks
	ListHooks    = localapi.NewQuery[localapi.None, HookList]("hooks")
	CompareHooks = localapi.NewQuery[localapi.None, HookProposal]("hooks.compare")
	ApplyHooks   = localapi.NewCommand[HooksRequest, HookProposal](HooksEvent)
	RunHooks     = localapi.NewCommand[HooksFrame, ChainRun](HooksRunVerb)
	NoteHooks    = localapi.NewCommand[HooksNote, localapi.None]("hooks.note")

	// profiles
	ListProfiles    = localapi.NewQuery[localapi.None, ProfileList](ProfilesQuery)
	CompareProfiles = localapi.NewQuery[ProfilesRequest, ProfileChange]("profile.compare")
	UseProfiles     = localapi.NewCommand[ProfilesRequest, ProfileChange](ProfileEvent)

	// settings
	ShowSettings      = localapi.NewQuery[SettingsQuery, settings.State]("settings")
	ApplySettings     = localapi.NewCommand[SettingsRequest, settings.Applied]("apply")
	ShowConfiguration = localapi.NewQuery[ClientFile, Configuration]("configuration")
	ConfigureClient   = localapi.NewCommand[Configuration, Configuration](ConfigureEvent)
	UndoConfiguration = localapi.NewCommand[Configuration, Configuration](UndoEvent)

	// shims
	InstallShims   = localapi.NewCommand[ShimTools, localapi.None](ShimInstallEvent)
	UninstallShims = localapi.NewCommand[ShimTools, localapi.None](ShimUninstallEvent)

	// receipts
	ListReceipts  = localapi.NewQuery[receipts.Filter, ReceiptList]("receipts")
	ListRecords   = localapi.NewQuery[receipts.Filter, receipts.Page]("records")
	ShowModel     = localapi.NewQuery[localapi.None, ModelStatus]("model-status")
	ShowReceipt   = localapi.NewQuery[ID, ShownReceipt]("receipt")
	ForgetReceipt = localapi.NewCommand[ID, receipts.Forgotten]("forget")

	// checkpoints
	SignCheckpoint      = localapi.NewQuery[CheckpointRequest, CheckpointReply]("checkpoint")
	ShowCheckpoint      = localapi.NewQuery[CheckpointRequest, CheckpointReply]("request")
	CosignCheckpoint    = localapi.NewQuery[CosignedCheckpoint, CheckpointReply]("cosign")
	ShowCheckpointKey   = localapi.NewQuery[localapi.None, KeyReply]("key")
	RotateCheckpointKey = localapi.NewCommand[localapi.None, KeyReply](RotateCommand)
	ProveReceipt        = localapi.NewQuery[ID, ProofReply]("prove")

	// agents in the agent jail
	ListWraps      = localapi.NewQuery[localapi.None, WrapsKnown]("wraps")
	StartWrap      = localapi.NewCommand[WrapQuery, WrapBegun](WrapStart)
	ReportRefusals = localapi.NewCommand[WrapRefusals, localapi.None](WrapRefused)
	EndWrap        = localapi.NewCommand[WrapEnding, localapi.None](WrapEnd)

	// cages
	PlanCage      = localapi.NewQuery[localapi.CallQuery, CagePlan]("cage")
	RecordJailRun = localapi.NewCommand[JailQuery, localapi.None](JailRunEvent)
	EnterSandbox  = localapi.NewCommand[SandboxEntering, localapi.None](SandboxEnterEvent)

	// images of machines
	RecordImage = localapi.NewCommand[ImageChange, localapi.None](ImageEvent)

	// redaction sessions
	ShowKeptSession = localapi.NewQuery[KeptQuery, KeptSession]("redactions")

	// tool calls of agents, and what people answered for the sessions of these agents
	JudgeToolCall   = localapi.NewQuery[ToolCall, agenthook.Verdict]("judge")
	EndAgentSession = localapi.NewQuery[AgentSession, localapi.None]("judge.end")
	ShowAsked       = localapi.NewQuery[ID, agenthook.Asked]("judge.asked")
	GrantSession    = localapi.NewCommand[ID, StandingGrant](agenthook.GrantEvent)
)
