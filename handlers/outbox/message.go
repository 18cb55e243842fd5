package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
)

// Message is what is to be sent.
type Message struct {
	// Topic is where to: a relay has a sender for it. Required.
	Topic string
	// Key keeps messages of a topic in the order that they are added in. Nil: this one waits for none.
	Key []byte
	// Value is the payload. Nil stays nil and empty stays empty, where the destination can tell.
	Value []byte
	// Headers are sent with it, in their order; see [Writer.Add] for those that are set by themselves. The header
	// message-id is the relay's.
	Headers []dedup.Header
	// Tenant separates idempotency keys. Empty where there is one only.
	Tenant string
	// IdempotencyKey makes a second message of the same tenant and key the same message: it is not added. Blanks around
	// it don't count, and an empty one is none: each message is a new one then. It may be any text of up to
	// [identity.MaxIDBytes] bytes; see [KeyOf] for one that follows from what happened.
	IdempotencyKey string
	// NotBefore is the earliest time to send it at. It keeps no order with others of its key then. Zero: at once.
	NotBefore time.Time
}

// Added is what Add has come to.
type Added struct {
	// ID is the message's, for ever: receivers find it in the header message-id. It follows from the idempotency key,
	// and is a UUIDv7 where there is none.
	ID uuid.UUID
	// AlreadyExisted says that one of the tenant and key was added before, whose content stands.
	AlreadyExisted bool
}

// row is a message as it is added.
type row struct {
	id    uuid.UUID
	keyed bool
	raw   *string
	*Message
	headers []byte
}

func rowOf(m *Message, headers []dedup.Header) (r row, err error) {
	if err := m.validate(); err != nil {
		return row{}, err
	}
	r = row{Message: m}
	if len(headers) > 0 {
		r.headers = dedup.AppendHeaders(nil, headers)
	}
	key := strings.Trim(m.IdempotencyKey, " \t\n\v\f\r")
	if key == "" {
		r.id, err = uuid.NewV7()
		return r, err
	}
	ids, err := identity.ParseIDs(m.IdempotencyKey)
	if err != nil {
		return row{}, fmt.Errorf("idempotency key: %w", err)
	}
	if r.id, r.keyed = ids[0], true; !isUUID(r.id, key) {
		r.raw = &key
	}
	return r, nil
}

// isUUID says that a key is the ID itself in one of its spellings.
func isUUID(id uuid.UUID, key string) bool {
	digits := strings.ReplaceAll(id.String(), "-", "")
	return strings.Contains(strings.ToLower(strings.ReplaceAll(key, "-", "")), digits)
}

// headerID is where receivers find a message's ID.
const headerID = "message-id"

func (m *Message) validate() error {
	switch {
	case dedup.CheckName(m.Topic) != nil:
		return fmt.Errorf("topic: %w", dedup.CheckName(m.Topic))
	case len(m.Tenant) > dedup.MaxTenantBytes || !isText(m.Tenant):
		return fmt.Errorf("the tenant has more than %d bytes, or is no text", dedup.MaxTenantBytes)
	case !isText(m.IdempotencyKey):
		return errors.New("the idempotency key is no text in UTF-8 without NUL")
	case slices.ContainsFunc(m.Headers, func(h dedup.Header) bool { return h.Key == headerID }):
		return errors.New("the header message-id is the outbox's: give the ID as IdempotencyKey")
	}
	return nil
}

// isText says that Postgres can hold a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
