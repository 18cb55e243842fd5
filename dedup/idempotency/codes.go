package idempotency

import "github.com/firstseen/firstseen/dedup/request"

// Header is looked at first for a key (draft-ietf-httpapi-idempotency-key-header-07).
const Header = request.KeyHeader

// MaxKeyChars caps a key's length, in characters, without the space around it.
const MaxKeyChars = request.MaxKeyChars

// The codes of problems, and the events of requests with a key. They don't change.
const (
	CodeUnauthorized   = "unauthorized"
	CodeKeyInvalid     = "idempotency_key_invalid"
	CodeKeyConflict    = "idempotency_key_conflict"
	CodeInProgress     = "idempotency_in_progress"
	CodeRequestTooBig  = request.CodeTooLarge
	CodeRequestBroken  = request.CodeUnreadable
	CodeAnswerTooBig   = "idempotency_answer_too_large"
	CodeNotCommitted   = "idempotency_not_committed"
	CodeOutcomeUnknown = "idempotency_outcome_unknown"
	CodeUnavailable    = "idempotency_unavailable"
	CodeBusy           = request.CodeBusy
)
