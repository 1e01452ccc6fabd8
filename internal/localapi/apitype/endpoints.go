package apitype

import "bailey/internal/localapi"

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
)
