package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// ConflictCopy is a message that came under an ID that had been seen with another content. The first one won; this
// one was not handled.
type ConflictCopy struct {
	Inbox, Handler string
	// SeenAt is when it came.
	SeenAt time.Time
	// Message is the copy, byte for byte, with its fingerprint. Its RawID is not kept.
	Message dedup.Message

	scope int32
}

var conflictsSQL = `
select s.inbox, s.handler, s.tenant, m.message_id, null::text, m.topic, m."partition", m."offset", ` + timestampColumn + `,
	m.key, m.headers, m.payload, m.fingerprint, m.seen_at, m.scope_id
from firstseen.conflicts m
join firstseen.scopes s using (scope_id)`

// Conflicts lists conflicts, the last seen first: up to limit of them, behind the cursor of the page before (empty:
// the first page). next is empty on the last page. A page carries keys, headers and values whole; it is shorter
// where those are more than 16 MiB. The filter's Reason does not count.
func (in *Inbox) Conflicts(ctx context.Context, f Filter, after Cursor,
	limit int) (copies []ConflictCopy, next Cursor, err error) {
	f.Reason = ""
	c := f.conditions(in.db.Inbox, "m.seen_at")
	if after != "" {
		last, err := after.conflict()
		if err != nil {
			return nil, "", fmt.Errorf("list conflicts: %w", err)
		}
		n := len(c.args)
		c.args = append(c.args, last.SeenAt, last.scope, last.Message.ID.String(), last.Message.Topic,
			last.Message.Partition)
		c.add(fmt.Sprintf(`(m.seen_at, m.scope_id, m.message_id, m.topic, m."partition", m."offset")
			< ($%d, $%d, $%d::text::uuid, $%d, $%d, $%%d)`, n+1, n+2, n+3, n+4, n+5), last.Message.Offset)
	}
	sql := conflictsSQL + c.where() + "\norder by m.seen_at desc, m.scope_id desc, m.message_id desc, m.topic desc, " +
		"m.\"partition\" desc, m.\"offset\" desc" + c.limit(limit)
	copies, next, err = collectPage(ctx, in.db.Pool, conflictPaging(limit), in.db.SQL(sql), c.args...)
	if err != nil {
		return nil, "", fmt.Errorf("list conflicts of inbox %s: %w", in.db.Inbox, err)
	}
	return copies, next, nil
}

func conflictPaging(limit int) paging[ConflictCopy] {
	return paging[ConflictCopy]{scanConflict, (*ConflictCopy).size, (*ConflictCopy).cursor, limit}
}

func scanConflict(row pgx.CollectableRow) (c ConflictCopy, err error) {
	var content contentRow
	err = row.Scan(append(append([]any{&c.Inbox, &c.Handler, &c.Message.Tenant}, content.columns(&c.Message)...),
		&c.Message.Fingerprint, &c.SeenAt, &c.scope)...)
	if err != nil {
		return c, err
	}
	return c, content.into(&c.Message)
}

func (c *ConflictCopy) size() int { return c.Message.Size() }

// cursor has the topic last, which may hold any character.
func (c *ConflictCopy) cursor() Cursor {
	return Cursor(fmt.Sprintf("c%d.%d.%s.%d.%d.%s", c.SeenAt.UnixMicro(), c.scope, c.Message.ID, c.Message.Partition,
		c.Message.Offset, c.Message.Topic))
}

func (c Cursor) conflict() (last ConflictCopy, err error) {
	parts := strings.SplitN(strings.TrimPrefix(string(c), "c"), ".", 6)
	if len(parts) != 6 || !strings.HasPrefix(string(c), "c") {
		return last, cursorError(c)
	}
	var numbers [4]int64
	for i, part := range []string{parts[0], parts[1], parts[3], parts[4]} {
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return last, cursorError(c)
		}
	}
	id, err := uuid.Parse(parts[2])
	if err != nil {
		return last, cursorError(c)
	}
	last.SeenAt, last.scope = time.UnixMicro(numbers[0]), int32(numbers[1])
	last.Message = dedup.Message{ID: id, Topic: parts[5], Partition: int32(numbers[2]), Offset: numbers[3]}
	return last, nil
}

// Winner gives the message that was seen first under the ID of a conflict, or nil where it is kept nowhere any more:
// it was discarded, or its day was dropped from the inbox.
func (in *Inbox) Winner(ctx context.Context, c ConflictCopy) (*Stored, error) {
	found, err := in.stored(ctx, c.scope, c.Message.ID)
	if err != nil {
		return nil, fmt.Errorf("look for the first message of ID %s: %w", c.Message.ID, err)
	}
	return found, nil
}
