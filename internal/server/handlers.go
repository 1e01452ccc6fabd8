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

		// the model proxy
		gateway.Handle(apitype.ShowModel, s.showModel),

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

		// packs
		gateway.Handle(apitype.ListPacks, s.packed.listPacks),
		gateway.Handle(apitype.ShowPack, s.packed.showPack),
		gateway.Handle(apitype.ListPackKeys, s.packed.listKeys),
		gateway.Handle(apitype.ComparePack, s.packed.previewInstall),
		gateway.Handle(apitype.InstallPack, s.packed.installPack),
		gateway.Handle(apitype.UninstallPack, s.packed.uninstallPack),
		gateway.Handle(apitype.TrustPackKey, s.packed.trustKey),
		gateway.Handle(apitype.UntrustPackKey, s.packed.untrustKey),
		gateway.Handle(apitype.PublishPack, s.packed.recordPublish),
		gateway.Handle(apitype.OnboardPack, s.packOnboard),
		gateway.Handle(apitype.ListProgramChanges, s.listChangedPrograms),
		gateway.Handle(apitype.RepinPrograms, s.repinPrograms),

		// policy
		gateway.Handle(apitype.ComparePolicy, s.Rules.previewPolicy),
		gateway.Handle(apitype.ShowPolicy, s.Rules.showPolicy),
		gateway.Handle(apitype.AddRule, s.addRule),
		gateway.Handle(apitype.ApplyPolicy, s.applyPolicy),
		gateway.Handle(apitype.ExplainCall, s.explainCall),
		gateway.Handle(apitype.ReconsiderReceipt, s.explainReceipt),

		// hooks
		gateway.Handle(apitype.ListHooks, s.listHooks),
		gateway.Handle(apitype.CompareHooks, s.hooks.previewReload),
		gateway.Handle(apitype.ApplyHooks, s.applyHooks),
		gateway.Handle(apitype.RunHooks, s.runHooks),
		gateway.Handle(apitype.NoteHooks, s.noteHooks),

		// profiles
		gateway.Handle(apitype.ListProfiles, s.listProfiles),
		gateway.Handle(apitype.CompareProfiles, s.compareProfiles),
		gateway.Handle(apitype.UseProfiles, s.useProfiles),

		// settings
		gateway.Handle(apitype.ShowSettings, s.showSettings),
		gateway.Handle(apitype.ApplySettings, s.applySettings),
		gateway.Handle(apitype.ShowConfiguration, s.showConfiguration),
		gateway.Handle(apitype.ConfigureClient, s.recordConfiguration),
		gateway.Handle(apitype.UndoConfiguration, s.undoConfiguration),

		// shims
		gateway.Handle(apitype.InstallShims, s.installShims),
		gateway.Handle(apitype.UninstallShims, s.uninstallShims),

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
		gateway.Handle(apitype.EnterSandbox, s.recordSandboxEntry),

		// images of machines
		gateway.Handle(apitype.RecordImage, s.recordImage),

		// redaction sessions
		gateway.Handle(apitype.ShowKeptSession, s.showKeptSession),

		// tool calls of agents
		gateway.Handle(apitype.JudgeToolCall, s.judgeToolCall),
		gateway.Handle(apitype.EndAgentSession, s.endAgentSession),
		gateway.Handle(apitype.ShowAsked, s.showAsked),
		gateway.Handle(apitype.GrantSession, s.grantSession),
	}
}
