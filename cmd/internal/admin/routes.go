package admin

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

const (
	prefix  = "/api/v1"
	maxBody = 1 // MiB

	dryRunNote = " With dry_run it is counted and nothing is changed."
)

func get(path, name, summary string) huma.Operation {
	return huma.Operation{Method: http.MethodGet, Path: path, OperationID: name, Summary: summary}
}

// post and remove take the right to write.
func post(path, name, summary string) huma.Operation {
	longest := maxActor
	return huma.Operation{Method: http.MethodPost, Path: path, OperationID: name, Summary: summary,
		Parameters: []*huma.Param{{Name: "X-Actor", In: "header",
			Description: "Who asks; kept in the audit beside what the credential proves.",
			Schema:      &huma.Schema{Type: huma.TypeString, MaxLength: &longest}}}}
}

func remove(path, name, summary string) huma.Operation {
	op := post(path, name, summary)
	op.Method = http.MethodDelete
	return op
}

func addOperations(api huma.API) {
	addProbe[Probe](api, "/livez")
	addProbe[Probe](api, "/readyz")
	addProbe[Health](api, "/healthz")

	add(api, (*call).atOnce, get("/status", "getStatus", "How this process is, and what it has done."), getStatus)
	add(api, (*call).atOnce, get("/partitions", "getPartitions",
		"The partitions that are assigned to this process."), getPartitions)
	add(api, (*call).look, get("/backlog", "getBacklog", "What waits in Postgres, by handler."), getBacklog)
	add(api, (*call).look, get("/size", "getSize",
		"How much space is taken in Postgres, and what a day adds."), getSize)

	add(api, (*call).look, get("/messages", "listMessages", "Messages by what has become of them: the last "+
		"received first, or for dead ones those that died last. Processed ones are read back from until to since, "+
		"with no index by topic, handler or key: narrow the time."), listMessages)
	add(api, (*call).look, get("/dead-letters", "listDeadLetters",
		"Dead letters, those that died last first."), listDeadLetters)
	add(api, (*call).look, get("/dead-letters/{handler}/{id}", "getDeadLetter",
		"One dead letter, with its content."), getDeadLetter)
	add(api, (*call).change, post("/dead-letters/redrive", "redriveDeadLetters",
		"Give dead letters back to their handlers."+dryRunNote), redrive)
	add(api, (*call).change, post("/dead-letters/discard", "discardDeadLetters",
		"Forget dead letters for good; their IDs stay seen."+dryRunNote), discard)
	add(api, (*call).look, get("/conflicts", "listConflicts",
		"Messages that came under a known ID with another content, the last first."), listConflicts)
	add(api, (*call).look, get("/explain", "explain", "What became of a message, by its ID or by its place, and why. "+
		"An offset is looked for in the inbox by reading it back to since."), explain)

	add(api, (*call).look, get("/pauses", "listPauses", "What is paused in the inbox."), listPauses)
	add(api, (*call).change, post("/pauses", "pause", "Pause a topic, a partition or a handler, "+
		"for all processes that consume into the inbox, until it is resumed."), pause)
	add(api, (*call).change, remove("/pauses", "resume", "Resume what is paused."), resume)
	add(api, (*call).look, get("/audit", "listAudit",
		"What was done by hand, by whom and why, the last first."), listAudit)
	add(api, (*call).atOnce, get("/openapi.json", "getOpenAPI", "This document."), getOpenAPI)
	addNulls(api.OpenAPI().Components.Schemas)
}

func getOpenAPI(c *call, _ *struct{}) (json.RawMessage, error) { return c.server.openapi, nil }
