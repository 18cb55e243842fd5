package admin

import (
	"net/http"

	"github.com/firstseen/firstseen/cmd/internal/view"
)

const prefix = "/api/v1"

// route is one method of one path of the API.
type route struct {
	method, path string // the path below prefix
	name         string // in camel case, for programs that are made from the OpenAPI document
	summary      string
	changes      bool // takes the right to write
	atOnce       bool // asks nobody
	parameters   []parameter
	body         any // a pointer to what the body is read into; nil: there is none
	answer       any // of the type that is answered
	serve        func(*call) (any, error)
}

var (
	dryRunNote = " With dry_run it is counted and nothing is changed."

	statusParameter = parameter{name: "status", kind: text, required: true, enum: []string{"pending", "failed",
		"processed", "dead"},
		doc: "What has become of the messages."}
	inPath = func(p parameter) parameter {
		p.inPath, p.required = true, true
		return p
	}
	pauseParameters = []parameter{{name: "kind", kind: text, required: true, enum: []string{"topic", "partition",
		"handler"}, doc: "What is paused."},
		{name: "name", kind: text, required: true, doc: "The topic's or the handler's name; a partition's is TOPIC/N."}}
)

// routes are the API.
var routes = []route{
	{method: http.MethodGet, path: "/status", name: "getStatus", summary: "How this process is, and what it has done.",
		atOnce: true, answer: view.Status{}, serve: getStatus},
	{method: http.MethodGet, path: "/partitions", name: "getPartitions",
		summary: "The partitions that are assigned to this process.",
		atOnce:  true, answer: view.Partitions{}, serve: getPartitions},
	{method: http.MethodGet, path: "/backlog", name: "getBacklog", summary: "What waits in Postgres, by handler.",
		answer: view.Backlog{}, serve: getBacklog},
	{method: http.MethodGet, path: "/size", name: "getSize",
		summary: "How much space is taken in Postgres, and what a day adds.",
		answer:  view.Size{}, serve: getSize},

	{method: http.MethodGet, path: "/messages", name: "listMessages",
		summary: "Messages by what has become of them: the last received first, or for dead ones those that died last. Processed ones are read back from until to since, with no index by topic, handler or key: narrow the time.",
		parameters: join([]parameter{statusParameter}, filterParameters, []parameter{reasonParameter, contentParameter},
			pageParameters),
		answer: view.Messages{}, serve: listMessages},
	{method: http.MethodGet, path: "/dead-letters", name: "listDeadLetters",
		summary:    "Dead letters, those that died last first.",
		parameters: join(filterParameters, []parameter{reasonParameter, contentParameter}, pageParameters),
		answer:     view.Messages{}, serve: listDeadLetters},
	{method: http.MethodGet, path: "/dead-letters/{handler}/{id}", name: "getDeadLetter",
		summary:    "One dead letter, with its content.",
		parameters: []parameter{inPath(handlerParameter), inPath(idParameter), tenantParameter},
		answer:     view.Message{}, serve: getDeadLetter},
	{method: http.MethodPost, path: "/dead-letters/redrive", name: "redriveDeadLetters", changes: true,
		summary: "Give dead letters back to their handlers." + dryRunNote,
		body:    &Change{}, answer: view.Changed{}, serve: redrive},
	{method: http.MethodPost, path: "/dead-letters/discard", name: "discardDeadLetters", changes: true,
		summary: "Forget dead letters for good; their IDs stay seen." + dryRunNote,
		body:    &Change{}, answer: view.Changed{}, serve: discard},
	{method: http.MethodGet, path: "/conflicts", name: "listConflicts",
		summary:    "Messages that came under a known ID with another content, the last first.",
		parameters: join(filterParameters, []parameter{contentParameter}, pageParameters),
		answer:     view.Conflicts{}, serve: listConflicts},
	{method: http.MethodGet, path: "/explain", name: "explain", summary: "What became of a message, by its ID or by its place, and why. An offset is looked for in the inbox by reading it back to since.",
		parameters: []parameter{{name: "id", kind: text, doc: "The ID as the producer wrote it, or the message's UUID."},
			topicParameter, partitionParameter,
			{name: "offset", kind: number, doc: "The message's offset."}, {name: "since", kind: times,
				doc: "How far back to look for an offset. Default 48h."}},
		answer: view.Explanation{}, serve: explain},

	{method: http.MethodGet, path: "/pauses", name: "listPauses", summary: "What is paused in the inbox.",
		answer: view.Pauses{}, serve: listPauses},
	{method: http.MethodPost, path: "/pauses", name: "pause", changes: true,
		summary: "Pause a topic, a partition or a handler, for all processes that consume into the inbox, until it is resumed.",
		body:    &NewPause{}, answer: view.PauseChanged{}, serve: pause},
	{method: http.MethodDelete, path: "/pauses", name: "resume", changes: true, summary: "Resume what is paused.",
		parameters: join(pauseParameters, []parameter{whyParameter}), answer: view.PauseChanged{}, serve: resume},

	{method: http.MethodGet, path: "/audit", name: "listAudit",
		summary: "What was done by hand, by whom and why, the last first.",
		parameters: join([]parameter{{name: "actor", kind: text, doc: "Exactly as it is in the audit."},
			{name: "action", kind: text, doc: "redrive, discard, pause, resume and the like."},
			{name: "since", kind: times, doc: "Not before this time."}, {name: "until", kind: times, doc: "Before this time."}},
			pageParameters),
		answer: view.Audit{}, serve: listAudit},
	{method: http.MethodGet, path: "/openapi.json", name: "getOpenAPI", summary: "This document.", atOnce: true,
		answer: map[string]any{}, serve: getOpenAPI},
}
