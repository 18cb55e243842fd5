package identity

// Reason says why a message has no usable ID. It is stored with the dead letter and is a label in
// metrics, so a value never changes its text.
type Reason string

const (
	// ReasonMissingID: no source of the topic yielded an ID. Absent, null and empty are all missing, and so are
	// the texts of NoIDs, and a CloudEvent with only one of source and id.
	ReasonMissingID Reason = "missing_id"
	// ReasonAmbiguousID: the ID is there more than once. A repeated header is ambiguous where its
	// values differ; a repeated JSON object key on the way to the ID always is, because parsers
	// disagree on which one counts.
	ReasonAmbiguousID Reason = "ambiguous_id"
	// ReasonIDTooLong: the ID has more than MaxIDBytes bytes.
	ReasonIDTooLong Reason = "id_too_long"
	// ReasonIDNotScalar: the JSON pointer leads to an object, an array, true or false.
	ReasonIDNotScalar Reason = "id_not_scalar"
	// ReasonNilID: the ID is the nil UUID (all zeros) or the max UUID (all ones) of RFC 9562. They
	// stand for "no ID" in a producer that forgot to set one, and as an ID would make every message
	// after the first a duplicate.
	ReasonNilID Reason = "nil_id"
	// ReasonNotJSON: the ID is to be read from the payload, and the payload is not JSON (RFC 8259)
	// or is nested deeper than 512 levels, and no other source yielded an ID.
	ReasonNotJSON Reason = "payload_not_json"
	// ReasonFramed is ReasonNotJSON for a payload that begins with a zero and the number of a schema in four bytes, as
	// Confluent's serializers have it, and that was not decoded: for want of a registry, or in vain.
	ReasonFramed Reason = "payload_has_schema_id"
	// ReasonBadTenant: the header that names the tenant is missing, empty, too long, not
	// valid text, or there twice with different values.
	ReasonBadTenant Reason = "bad_tenant"
)

// Reasons are all of them. They are texts, which all of pgx's query modes take for a parameter.
func Reasons() []string {
	return []string{string(ReasonMissingID), string(ReasonAmbiguousID), string(ReasonIDTooLong),
		string(ReasonIDNotScalar), string(ReasonNilID), string(ReasonNotJSON), string(ReasonFramed),
		string(ReasonBadTenant)}
}

// final reports whether an ID is there but unusable. Then no later source may be asked: it would
// give the message another identity than its producer meant.
func (r Reason) final() bool {
	return r != "" && r != ReasonMissingID && r != ReasonNotJSON && r != ReasonFramed
}
