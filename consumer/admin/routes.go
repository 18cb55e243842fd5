package admin

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firstseen/firstseen/consumer/service"
)

const (
	prefix   = "/api/v1"
	pagePath = prefix + "/try" // beside the document, where the page looks for it
	maxBody  = 1               // MiB

	dryRunNote = " With dry_run it is counted and nothing is changed."
)

// The operations' errors are the statuses of problems that others don't have.
func get(path, name, summary string, errors ...int) huma.Operation {
	return huma.Operation{Method: http.MethodGet, Path: path, OperationID: name, Summary: summary, Errors: errors}
}

// post and remove take the right to write.
func post(path, name, summary string, errors ...int) huma.Operation {
	longest := maxActor
	return huma.Operation{Method: http.MethodPost, Path: path, OperationID: name, Summary: summary, Errors: errors,
		Parameters: []*huma.Param{{Name: "X-Actor", In: "header",
			Description: "Who asks; kept in the audit beside what the credential proves. ASCII, or UTF-8 that can be printed.",
			Schema:      &huma.Schema{Type: huma.TypeString, MaxLength: &longest, Pattern: "^[ -~]*$"}}}}
}

func remove(path, name, summary string) huma.Operation {
	op := post(path, name, summary)
	op.Method = http.MethodDelete
	return op
}

func addOperations(api huma.API) {
	addProbe[service.Probe](api, "/livez")
	addProbe[service.Probe](api, "/readyz")
	addProbe[service.Health](api, "/healthz")

	add(api, (*call).atOnce, get("/status", "getStatus", "How this process is, and what it has done."), getStatus)
	add(api, (*call).atOnce, get("/access", "getAccess", "Who asks, and whether changes are allowed."), getAccess)
	add(api, (*call).atOnce, get("/history", "getHistory",
		"How this process has been for the last hour, by samples."), getHistory)
	add(api, (*call).atOnce, get("/doctor", "getFindings", "What firstseen doctor finds, looked at from this process, at "+
		"most every half minute. A program that has no doctor answers 501.", http.StatusNotImplemented), getFindings)
	add(api, (*call).atOnce, get("/partitions", "getPartitions",
		"The partitions that are assigned to this process."), getPartitions)
	add(api, (*call).look, get("/positions", "getPositions", "Where the consumers of all processes stand, replays among "+
		"them, and what waits there, as far as they have told Postgres."), getPositions)
	add(api, (*call).look, get("/backlog", "getBacklog", "What waits in Postgres, by handler."), getBacklog)
	add(api, (*call).look, get("/size", "getSize",
		"How much space is taken in Postgres, and what a day adds."), getSize)

	add(api, (*call).look, get("/messages", "listMessages", "Messages by what has become of them: the last "+
		"received first, or for dead ones those that died last. Processed ones are read back from until to since, "+
		"with no index by topic, handler or key: narrow the time."), listMessages)
	add(api, (*call).stream, get("/messages/value", "downloadValue", "One message's value, whole and as it is, as a file, "+
		"however large.", http.StatusNotFound), getValue)
	add(api, (*call).look, get("/dead-letters", "listDeadLetters",
		"Dead letters, those that died last first."), listDeadLetters)
	add(api, (*call).look, get("/dead-letters/{handler}/{id}", "getDeadLetter",
		"One dead letter, with its content.", http.StatusNotFound), getDeadLetter)
	add(api, (*call).change, post("/dead-letters/redrive", "redriveDeadLetters",
		"Give dead letters back to their handlers."+dryRunNote, http.StatusConflict), redrive)
	add(api, (*call).change, post("/dead-letters/discard", "discardDeadLetters",
		"Forget dead letters for good; their IDs stay seen."+dryRunNote), discard)
	add(api, (*call).look, get("/dead-letters/errors", "groupDeadLetters",
		"The newest dead letters by what they died of, the most first."), groupDeadLetters)
	add(api, (*call).look, get("/lanes/errors", "groupLanes", "What waits, by handler and by what the message that a lane "+
		"waits for has failed with."), groupLanes)
	add(api, (*call).look, get("/dead-letters/count", "countDeadLetters", "Count the dead letters that a job would be of, "+
		"in bounded time, and fix the moment for it. Whoever may read may ask."), countDeadLetters)
	addJobs(api)
	add(api, (*call).look, get("/conflicts", "listConflicts",
		"Messages that came under a known ID with another content, the last first."), listConflicts)
	add(api, (*call).look, get("/conflicts/{handler}/{id}", "getConflicts", "The messages that came under an ID with another "+
		"content, up to 100, each beside the one that came first.", http.StatusNotFound), getConflicts)
	add(api, (*call).look, get("/explain", "explain", "What became of a message, by its ID or by its place, or of HTTP requests, by their idempotency key, and why. "+
		"An offset is looked for in the inbox by reading it back to since."), explain)

	add(api, (*call).look, get("/pauses", "listPauses", "What is paused in the inbox."), listPauses)
	add(api, (*call).change, post("/pauses", "pause", "Pause a topic, a partition or a handler, "+
		"for all processes that consume into the inbox, until it is resumed."), pause)
	add(api, (*call).change, remove("/pauses", "resume", "Resume what is paused."), resume)
	add(api, (*call).disclose, post("/unmask", "unmask", "Show a message and its copies with all that is hidden of them. Who "+
		"asked, and why, stands in the audit before anything is shown.", http.StatusNotFound), unmask)
	addOutbox(api)
	add(api, (*call).look, get("/audit", "listAudit",
		"What was done by hand, by whom and why, the last first."), listAudit)
	add(api, (*call).atOnce, get("/openapi.json", "getOpenAPI", "This document."), getOpenAPI)
	addNulls(api.OpenAPI().Components.Schemas)
}

// addJobs adds what is done to many messages, beside the request.
func addJobs(api huma.API) {
	add(api, (*call).change, post("/jobs", "createJob", "Have dead letters redriven or discarded by whichever process runs: "+
		"all that a filter picks and that lay there at a moment. It goes on without whoever asked for it.",
		http.StatusConflict), createJob)
	add(api, (*call).look, get("/jobs", "listJobs", "Jobs, the last made first, until 30 days after their end."), listJobs)
	add(api, (*call).look, get("/jobs/{id}", "getJob", "One job, of the inbox or the outbox: how far it is, and what came of it.",
		http.StatusNotFound), getJob)
	add(api, (*call).change, post("/jobs/{id}/cancel", "cancelJob", "End a job. What it has done stays done; one that "+
		"has ended stays as it is.", http.StatusNotFound), cancelJob)
	add(api, (*call).change, post("/jobs/{id}/pause", "pauseJob", "Have a job rest where it is. One that rests, or has ended, stays as it is.",
		http.StatusNotFound), pauseJob)
	add(api, (*call).change, post("/jobs/{id}/resume", "resumeJob", "Have a job that rests go on where it was.",
		http.StatusNotFound), resumeJob)
	add(api, (*call).look, get("/reruns/plan", "planRerun", "What a rerun would be of: processed messages of one handler, which would handle "+
		"them again. Nothing is changed, and whoever may read may ask. The inbox is read back from until to since: no index is kept for that.",
		http.StatusConflict), planRerun)
	add(api, (*call).apart, get("/replays/plan", "planReplay", "What a replay of a topic would read, and what would become of the messages, "+
		"counted for some seconds. Nothing is changed, and whoever may read may ask. A process that reads no topic answers 501.",
		http.StatusConflict, http.StatusNotImplemented), planReplay)
	add(api, (*call).apart, post("/replays", "createReplay", "Have a part of a topic read again, beside the group: what was seen has no "+
		"effect. It is a job, done by a process of the group.", http.StatusConflict, http.StatusNotImplemented), createReplay)
	add(api, (*call).change, post("/reruns", "createRerun", "Have a handler handle messages again that it has processed: what it does takes "+
		"effect a second time. It is a job, done by whichever process runs.", http.StatusConflict), createRerun)
}

// addOutbox adds what is done with the outbox as it is with the inbox.
func addOutbox(api huma.API) {
	add(api, (*call).look, get("/outbox/backlog", "getOutboxBacklog", "What waits to be sent, by topic."),
		ofOutbox(getOutboxBacklog))
	add(api, (*call).look, get("/outbox/messages", "listOutboxMessages", "Messages of the outbox by what has become of "+
		"them, the last first; a destination is asked for as handler. Processed ones are read back from until to since."),
		ofOutbox(listMessages))
	add(api, (*call).change, post("/outbox/dead-letters/redrive", "redriveOutbox",
		"Have dead letters of the outbox sent again."+dryRunNote, http.StatusConflict), ofOutbox(redrive))
	add(api, (*call).change, post("/outbox/dead-letters/discard", "discardOutbox",
		"Forget dead letters of the outbox for good; their IDs stay known."+dryRunNote), ofOutbox(discard))
	add(api, (*call).disclose, post("/outbox/unmask", "unmaskOutbox", "Show a message of the outbox with all that is hidden "+
		"of it.", http.StatusNotFound), ofOutbox(unmask))
	add(api, (*call).look, get("/outbox/audit", "listOutboxAudit",
		"What was done by hand with the outbox, by whom and why, the last first."), ofOutbox(listAudit))
	add(api, (*call).look, get("/outbox/dead-letters/errors", "groupOutboxDeadLetters",
		"The newest dead letters of the outbox by what they died of."), ofOutbox(groupDeadLetters))
	add(api, (*call).look, get("/outbox/lanes/errors", "groupOutboxLanes", "What waits to be sent again, by destination and error."),
		ofOutbox(groupLanes))
	add(api, (*call).look, get("/outbox/dead-letters/count", "countOutboxDeadLetters", "Count the dead letters of the outbox "+
		"that a job would be of, and fix the moment for it."), ofOutbox(countDeadLetters))
	add(api, (*call).change, post("/outbox/jobs", "createOutboxJob", "Have dead letters of the outbox redriven or "+
		"discarded by whichever process runs.", http.StatusConflict), ofOutbox(createJob))
	add(api, (*call).look, get("/outbox/jobs", "listOutboxJobs", "Jobs of the outbox, the last made first."),
		ofOutbox(listJobs))
	add(api, (*call).look, get("/outbox/pauses", "listOutboxPauses", "What is not sent, as it is paused."),
		ofOutbox(listPauses))
	add(api, (*call).change, post("/outbox/pauses", "pauseOutbox", "Pause the sending of a topic's messages, or of those "+
		"to a destination, which is a handler here, in all processes, until it is resumed."), ofOutbox(pause))
	add(api, (*call).change, remove("/outbox/pauses", "resumeOutbox", "Resume what is paused."), ofOutbox(resume))
}

// ofOutbox does with the outbox what is done with the inbox.
func ofOutbox[I, O any](do func(*call, *I) (O, error)) func(*call, *I) (O, error) {
	return func(c *call, in *I) (O, error) {
		if c.attached != nil {
			c.attached = c.attached.Outbox()
		}
		return do(c, in)
	}
}

func getOpenAPI(c *call, _ *struct{}) (json.RawMessage, error) { return c.api.openapi, nil }
