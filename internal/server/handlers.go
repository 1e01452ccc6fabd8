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

		// receipts
		gateway.Handle(apitype.ListReceipts, s.listReceipts),
		gateway.Handle(apitype.ListRecords, s.listRecords),
		gateway.Handle(apitype.ShowReceipt, s.showReceipt),
		gateway.Handle(apitype.ForgetReceipt, s.forgetReceipt),

		// checkpoints
		gateway.Handle(apitype.SignCheckpoint, s.signCheckpoint),
		gateway.Handle(apitype.ShowCheckpoint, s.showCheckpoint),
		gateway.Handle(apitype.CosignCheckpoint, s.cosignCheckpoint),
		gateway.Handle(apitype.ShowCheckpointKey, s.showCheckpointKey),
		gateway.Handle(apitype.RotateCheckpointKey, s.rotateCheckpointKey),
		gateway.Handle(apitype.ProveReceipt, s.proveReceipt),

		// agents in the agent jail
		gateway.Handle(apitype.ListWraps, s.listWraps),
		gateway.Handle(apitype.StartWrap, s.startWrap),
		gateway.Handle(apitype.ReportRefusals, s.reportRefusals),
		gateway.Handle(apitype.EndWrap, s.endWrap),

		// cages
		gateway.Handle(apitype.PlanCage, s.planCage),
		gateway.Handle(apitype.RecordJailRun, s.recordJailRun),

		// redaction sessions
		gateway.Handle(apitype.ShowKeptSession, s.showKeptSession),

		// tool calls of agents
		gateway.Handle(apitype.JudgeToolCall, s.judgeToolCall),
	}
}
