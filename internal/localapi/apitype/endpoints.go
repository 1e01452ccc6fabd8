package apitype

import (
	"bailey/internal/judge"
	"bailey/internal/localapi"
	"bailey/internal/receipts"
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

	// receipts
	ListReceipts  = localapi.NewQuery[receipts.Filter, ReceiptList]("receipts")
	ListRecords   = localapi.NewQuery[receipts.Filter, receipts.Page]("records")
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

	// redaction sessions
	ShowKeptSession = localapi.NewQuery[KeptQuery, KeptSession]("redactions")

	// tool calls of agents
	JudgeToolCall = localapi.NewQuery[ToolCall, judge.Verdict]("judge")
)
