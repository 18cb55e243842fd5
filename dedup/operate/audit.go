package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// AuditEntry is one thing that was done to a message by hand.
type AuditEntry struct {
	At                 time.Time
	Actor, Action, Why string
	// Login is the session's login to Postgres, whatever Actor says; empty for what was done before it was kept.
	Login string
}

// auditSQL gives what was noted for a message in a scope, and for it in all scopes of its inbox.
const auditSQL = `
select a.at, a.actor, a.action, a.why, a.login
from firstseen.audit a
where a.message_id = $2::text::uuid and (a.scope_id = $1
	or a.scope_id is null and a.inbox = (select s.inbox from firstseen.scopes s where s.scope_id = $1))
order by a.audit_id`

func scanAudit(row pgx.CollectableRow) (a AuditEntry, err error) {
	return a, row.Scan(&a.At, &a.Actor, &a.Action, &a.Why, &a.Login)
}

// AuditRecord is one thing that was done by hand, and to what.
type AuditRecord struct {
	AuditEntry
	// Handler, Tenant and MessageID are those of the message that it was done to; Subject is what it was done to
	// otherwise, such as "topic orders".
	Handler, Tenant string
	MessageID       uuid.UUID
	Subject         string

	id int64
}

// AuditFilter picks records; each field that is set narrows it. Actor and Action are exact, From is included and To
// is not.
type AuditFilter struct {
	Actor, Action string
	From, To      time.Time
}

const auditListSQL = `
select m.audit_id, m.at, m.actor, m.action, m.why, m.login, coalesce(s.handler, ''), coalesce(s.tenant, ''), m.message_id, coalesce(m.subject, '')
from firstseen.audit m
left join firstseen.scopes s using (scope_id)`

// Audit lists what was done by hand to the inbox and its messages, the last first: up to limit records, behind the
// cursor of the page before (empty: the first page). next is empty on the last page. It reads back until there are
// enough; ctx's deadline bounds it.
func (in *Inbox) Audit(ctx context.Context, f AuditFilter, after Cursor,
	limit int) (records []AuditRecord, next Cursor, err error) {
	c := &condition{}
	c.add("coalesce(s.inbox, m.inbox) = $%d", in.db.Inbox)
	if f.Actor != "" {
		c.add("m.actor = $%d", f.Actor)
	}
	if f.Action != "" {
		c.add("m.action = $%d", f.Action)
	}
	if !f.From.IsZero() {
		c.add("m.at >= $%d", f.From)
	}
	if !f.To.IsZero() {
		c.add("m.at < $%d", f.To)
	}
	if after != "" {
		var id int64
		if _, err := fmt.Sscanf(string(after), "a%d", &id); err != nil {
			return nil, "", fmt.Errorf("list audit: %w", cursorError(after))
		}
		c.add("m.audit_id < $%d", id)
	}
	sql := in.db.SQL(auditListSQL + c.where() + "\norder by m.audit_id desc" + c.limit(limit))
	err = in.db.Look(ctx, nil, func(tx pgx.Tx) (err error) {
		records, next, err = collectPage(ctx, tx, paging[AuditRecord]{scanAuditRecord, (*AuditRecord).size,
			(*AuditRecord).cursor, limit}, sql, c.args...)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list audit of inbox %s: %w", in.db.Inbox, err)
	}
	return records, next, nil
}

func scanAuditRecord(row pgx.CollectableRow) (a AuditRecord, err error) {
	var message *uuid.UUID
	err = row.Scan(&a.id, &a.At, &a.Actor, &a.Action, &a.Why, &a.Login, &a.Handler, &a.Tenant, &message, &a.Subject)
	a.MessageID = db.Deref(message)
	return a, err
}

func (a *AuditRecord) size() int      { return len(a.Actor) + len(a.Why) }
func (a *AuditRecord) cursor() Cursor { return Cursor(fmt.Sprintf("a%d", a.id)) }
