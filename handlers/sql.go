package handlers

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/migrations"
)

// SQL is a handler written in Postgres: a function that returns void and takes one argument, whose type says how
// it is called. A batch is one statement and one round trip either way.
//
//	create function app.on_payment(m firstseen.message) returns void         -- once a message, in offset order
//	create function app.on_payments(batch firstseen.message[]) returns void  -- once, with the whole batch in order
//
// The function runs in the batch's transaction; for an error that it raises the batch is halved until the message that
// causes it stands alone. By the SQLSTATE it says more: [SQLStatePermanent], [SQLStateUnavailable]. It may read a
// header with firstseen.header(m, 'name') and the payload as JSON with firstseen.body(m). Where the topic has a
// [Format], the payload that it is given is the JSON; the inbox keeps the bytes that came.
type SQL struct {
	function  string // quoted and with its schema
	statement string
}

// NewSQL looks the function up: by its schema, where the name has one, else in the pool's search_path. Names are
// spelled as in SQL, quotes included. schema is firstseen's own, "" for the default. It fails where there is no such
// function, more than one that would fit, or one that doesn't, and says what was found and what is wanted. A function
// that is replaced later is called as it then is; one whose argument's type changes needs a new SQL.
func NewSQL(ctx context.Context, pool *pgxpool.Pool, schema, function string) (*SQL, error) {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	found, err := lookUp(ctx, pool, schema, function, "")
	if err != nil {
		return nil, fmt.Errorf("look up function %s: %w", function, err)
	}
	f, err := choose(found, schema+".message")
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", function, err)
	}
	return &SQL{f.Name, f.statement(schema)}, nil
}

// CheckFunction says what keeps a role from having a function as its handler, as NewSQL would; nil: nothing does. An
// empty role is that of the pool. What the function itself does, and may, shows only when it is called.
func CheckFunction(ctx context.Context, pool *pgxpool.Pool, schema, function, role string) error {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	found, err := lookUp(ctx, pool, schema, function, role)
	if err == nil {
		_, err = choose(found, schema+".message")
	}
	if err != nil {
		return fmt.Errorf("function %s: %w", function, err)
	}
	return nil
}

// What a function can say by the SQLSTATE of its error, as in: raise 'no account %', name using errcode = 'PERMA'.
const (
	// SQLStatePermanent is [Permanent].
	SQLStatePermanent = "PERMA"
	// SQLStateUnavailable is [Unavailable].
	SQLStateUnavailable = "UNAVA"
)

// HandleBatch calls the function.
func (s *SQL) HandleBatch(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
	ms, err := bodies(ms)
	if err != nil {
		return err
	}
	err = asRaised(dedup.ExecColumns(ctx, tx, s.statement, ms))
	switch {
	case err == nil:
		return nil
	case len(ms) == 1:
		return messageError(&ms[0], fmt.Errorf("call %s: %w", s.function, saysFramed(&ms[0], err)))
	}
	return fmt.Errorf("call %s: %w", s.function, err)
}

// notText is the SQLSTATE of bytes that are no text, character_not_in_repertoire.
const notText = "22021"

// saysFramed marks the error of a function that took a framed payload for text, which stays in vain.
func saysFramed(m *dedup.Message, err error) error {
	if failure.Code(err) != notText || m.Decoded != nil || !identity.IsFramed(m.Value) {
		return err
	}
	return Undecodable(fmt.Errorf("%w; the payload is no text: %s", err, identity.Framing(m.Value)))
}

// asRaised marks a function's error by its SQLSTATE.
func asRaised(err error) error {
	switch failure.Code(err) {
	case SQLStatePermanent:
		return Permanent(err)
	case SQLStateUnavailable:
		return Unavailable(err)
	}
	return err
}

// function is one that pg_proc has under the name.
type function struct {
	Name      string // quoted and with its schema
	Signature string
	Takes     string // message, batch or other
	Returns   string // void where it is a function that does
	Callable  bool   // by this role
}

const lookUpSQL = `
select format('%I.%I', n.nspname, p.proname),
       format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
       case when p.pronargs <> 1 or p.provariadic <> 0 then 'other'
            when p.proargtypes[0] = message.oid then 'message'
            when p.proargtypes[0] = message.typarray then 'batch'
            else 'other' end,
       case when p.prokind <> 'f' then 'nothing, as a procedure or an aggregate'
            else pg_get_function_result(p.oid) end,
       has_schema_privilege(me.role, n.oid, 'usage') and has_function_privilege(me.role, p.oid, 'execute')
from parse_ident($1) names (part)
join pg_proc p on p.proname = part[cardinality(part)]
join pg_namespace n on n.oid = p.pronamespace
cross join (select coalesce(nullif($3, ''), current_user)::name as role) me
cross join (select t.oid, t.typarray from pg_type t where t.oid = to_regtype($2)) message
where case cardinality(part) when 1 then n.nspname = any (current_schemas(true))
                             when 2 then n.nspname = part[1] else false end
order by 2`

func lookUp(ctx context.Context, pool *pgxpool.Pool, schema, name, role string) ([]function, error) {
	message := migrations.Schema(schema).SQL("firstseen.message")
	var there bool
	if err := pool.QueryRow(ctx, `select to_regtype($1) is not null`, message).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		return nil, fmt.Errorf("there is no type %s.message: run `firstseen migrate up`", schema)
	}
	rows, err := pool.Query(ctx, lookUpSQL, name, message, role)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[function])
}

// choose picks the one function that can be called with messages.
func choose(found []function, message string) (function, error) {
	want := fmt.Sprintf("one argument of type %s (called once a message) or %s[] (called once a batch)",
		message, message)
	var fit []function
	for _, f := range found {
		if f.Takes != "other" {
			fit = append(fit, f)
		}
	}
	switch {
	case len(found) == 0:
		return function{}, fmt.Errorf("there is none of that name; create it with %s, and returning void", want)
	case len(fit) == 0:
		return function{}, fmt.Errorf("found %s; want %s", signatures(found), want)
	case len(fit) > 1:
		return function{}, fmt.Errorf("ambiguous, found %s; want one of them, by its schema's name or by its own",
			signatures(fit))
	}
	switch f := fit[0]; {
	case f.Returns != "void":
		return function{},
			fmt.Errorf("found %s, which returns %s; want a function that returns void", f.Signature, f.Returns)
	case !f.Callable:
		return function{}, fmt.Errorf("found %s, which this role may not execute", f.Signature)
	default:
		return f, nil
	}
}

func signatures(found []function) string {
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = f.Signature
	}
	return strings.Join(texts, " and ")
}

// statement calls the function. The rows of unnest come in the order of ordinal, so nothing is sorted.
func (f function) statement(schema string) string {
	message := `row(m.id, m.raw_id, m.tenant, m.topic, m."partition", m."offset", m.produced_at, m.key, m.payload,
		m.headers)::` + migrations.Schema(schema).SQL("firstseen.message")
	from := ` from ` + dedup.UnnestColumns + ` order by m.ordinal`
	if f.Takes == "batch" {
		return `select ` + f.Name + `(array(select ` + message + from + `))`
	}
	return `select ` + f.Name + `(` + message + `)` + from
}
