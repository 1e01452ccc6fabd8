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

		// packs
		gateway.Handle(apitype.ListPacks, s.packed.list),
		gateway.Handle(apitype.ShowPack, s.packed.show),
		gateway.Handle(apitype.ListPackKeys, s.packed.keys),
		gateway.Handle(apitype.ComparePack, s.packed.look),
		gateway.Handle(apitype.InstallPack, s.packed.install),
		gateway.Handle(apitype.UninstallPack, s.packed.uninstall),
		gateway.Handle(apitype.TrustPackKey, s.packed.trust),
		gateway.Handle(apitype.UntrustPackKey, s.packed.untrust),
		gateway.Handle(apitype.PublishPack, s.packed.published),
		gateway.Handle(apitype.OnboardPack, s.packOnboard),
		gateway.Handle(apitype.ListProgramChanges, s.changes),
		gateway.Handle(apitype.RepinPrograms, s.repin),

		// policy
		gateway.Handle(apitype.ComparePolicy, s.Rules.compare),
		gateway.Handle(apitype.ShowPolicy, s.Rules.show),
		gateway.Handle(apitype.ApplyPolicy, s.Rules.apply),
		gateway.Handle(apitype.ExplainCall, s.explain),
		gateway.Handle(apitype.ReconsiderReceipt, s.reconsider),

		// hooks
		gateway.Handle(apitype.ListHooks, s.listHooks),
		gateway.Handle(apitype.CompareHooks, s.hooks.book.compare),
		gateway.Handle(apitype.ApplyHooks, s.applyHooks),
		gateway.Handle(apitype.RunHooks, s.runHooks),
		gateway.Handle(apitype.NoteHooks, s.noteHooks),

		// profiles
		gateway.Handle(apitype.ListProfiles, s.listProfiles),
		gateway.Handle(apitype.CompareProfiles, s.compareProfiles),
		gateway.Handle(apitype.UseProfiles, s.useProfiles),

		// settings
		gateway.Handle(apitype.ShowSettings, s.desk.state),
		gateway.Handle(apitype.ApplySettings, s.desk.apply),
		gateway.Handle(apitype.ShowConfiguration, s.desk.configuration),
		gateway.Handle(apitype.ConfigureClient, s.desk.configure),
		gateway.Handle(apitype.UndoConfiguration, s.desk.undo),

		// shims
		gateway.Handle(apitype.InstallShims, s.installShims),
		gateway.Handle(apitype.UninstallShims, s.uninstallShims),
	}
}
