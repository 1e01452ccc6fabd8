package apitype

import (
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/policy"
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
	ApplyPolicy       = localapi.NewCommand[PolicyRequest, Proposed](PolicyEvent)
	ExplainCall       = localapi.NewQuery[localapi.CallQuery, policy.Explanation]("explain")
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
)
