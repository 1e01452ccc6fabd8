package server

import (
	"bailey/internal/gateway"
	"bailey/internal/localapi/apitype"
)

// handlers returns the table of all queries and commands.
func (s *Server) handlers() []gateway.Handler {
	return []gateway.Handler{
		// agents
		gateway.Handle(apitype.ListAgents, s.listAgents),
		gateway.Handle(apitype.ListTokens, s.listTokens),
		gateway.Handle(apitype.AddAgent, s.addAgent),
		gateway.Handle(apitype.RotateAgent, s.rotateAgent),
		gateway.Handle(apitype.RemoveAgent, s.removeAgent),
		gateway.Handle(apitype.AddToken, s.addToken),
		gateway.Handle(apitype.RevokeToken, s.revokeToken),

		// approvals
		gateway.Handle(apitype.ListQuestions, s.listQuestions),
		gateway.Handle(apitype.ApproveQuestion, s.approveQuestion),
		gateway.Handle(apitype.DenyQuestion, s.denyQuestion),
		gateway.Handle(apitype.RecordAnswerListener, s.recordAnswerListener),

		// standing grants
		gateway.Handle(apitype.ListGrants, s.listGrants),
		gateway.Handle(apitype.DraftGrant, s.draftGrant),
		gateway.Handle(apitype.GiveGrant, s.giveGrant),
		gateway.Handle(apitype.RevokeGrant, s.revokeGrant),

		// notifications
		gateway.Handle(apitype.TestNotifications, s.testNotifications),
		gateway.Handle(apitype.MakeNotifyKey, s.makeNotifyKey),

		// the gateway
		gateway.Handle(apitype.ShowStatus, s.showStatus),
		gateway.Handle(apitype.ShowPresent, s.showPresent),
		gateway.Handle(apitype.ShowMetrics, s.showMetrics),
		gateway.Handle(apitype.ListBudgets, s.listBudgets),

		// the kill switch
		gateway.Handle(apitype.KillCalls, s.killCalls),
		gateway.Handle(apitype.ShowKilled, s.showKilled),
		gateway.Handle(apitype.ResumeCalls, s.resumeCalls),

		// sessions
		gateway.Handle(apitype.BeginSession, s.beginSession),

		// capabilities
		gateway.Handle(apitype.ListCapabilities, s.listCapabilities),
		gateway.Handle(apitype.SearchCapabilities, s.searchCapabilities),
		gateway.Handle(apitype.ShowCapability, s.showCapability),
		gateway.Handle(apitype.ExportTools, s.exportTools),
	}
}
