package identity

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// ParseIDs gives the message IDs that a text may stand for: what the text is in a header, in the payload or as a key,
// and, where it is a source and an id with a space between, what that CloudEvent is. It is how people name messages by
// the IDs that producers wrote. The error says why no message has such an ID.
func ParseIDs(text string) ([]uuid.UUID, error) {
	trimmed := trimText([]byte(text))
	found := textID(trimmed, "")
	switch found.reason {
	case "":
	case ReasonMissingID:
		return nil, errors.New("message ID: the text is empty")
	case ReasonIDTooLong:
		return nil, fmt.Errorf("message ID: the text has %d bytes, more than the %d that an ID may have",
			len(trimmed), MaxIDBytes)
	default:
		return nil, fmt.Errorf("message ID %s: no message has it: %s", text, found.reason)
	}
	ids := []uuid.UUID{found.id}
	if _, plain := parseUUID(trimmed); !plain && found.raw == "" {
		ids = append(ids, uuid8.New(uuid8.Text, trimmed)) // earlier versions saw no UUID in it
	}
	if source, id, ok := bytes.Cut(trimmed, []byte(" ")); ok && len(source) > 0 && len(id) > 0 {
		ids = append(ids, uuid8.New(uuid8.CloudEvent, source, id))
	}
	return ids, nil
}
