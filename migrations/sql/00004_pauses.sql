-- +goose Up

-- What operators have paused: a topic, a partition of one, or a handler. Its lanes rest too.
create table firstseen.pauses (
    inbox       text not null,
    kind        text not null check (kind in ('topic', 'partition', 'handler')),
    name        text not null check (name <> ''),  -- of the topic or the handler
    "partition" int not null default -1,           -- -1: not of a partition
    at          timestamptz not null default now(),
    actor       text not null,
    why         text not null,
    check ((kind = 'partition') = ("partition" >= 0)),
    primary key (inbox, kind, name, "partition")
);

-- An entry is of a message, or of a subject that is none, in an inbox: 'topic orders', say. The login is Postgres' word
-- beside what the caller says of itself; entries from before have none.
alter table firstseen.audit
    alter column scope_id drop not null,
    alter column message_id drop not null,
    add column inbox text,
    add column subject text,
    add column login text not null default '',
    add constraint actor_and_why_are_said check (actor ~ '\S' and why ~ '\S'),
    add constraint audit_of check (num_nulls(scope_id, message_id) = 0 or num_nulls(inbox, subject) = 0);
alter table firstseen.audit alter column login set default session_user;

-- pause_subject is what the audit calls the thing that is paused.
-- +goose StatementBegin
create or replace function firstseen.pause_subject(p_kind text, p_name text, p_partition int)
returns text
language sql
immutable
set search_path = firstseen, pg_temp
as $$
    select p_kind || ' ' || p_name || case when p_partition >= 0 then '/' || p_partition else '' end;
$$;
-- +goose StatementEnd

-- pause says whether it was not paused already, in which case the first one's reason stands.
-- It runs as the schema's owner, so that an operator needs no right to insert.
-- +goose StatementBegin
create or replace function firstseen.pause(
    p_inbox text, p_kind text, p_name text, p_partition int, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with paused as (
        insert into pauses (inbox, kind, name, "partition", actor, why)
        values (p_inbox, p_kind, p_name, p_partition, p_actor, p_why)
        on conflict do nothing
        returning kind, name, "partition"),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'pause', p_why, p_inbox, pause_subject(kind, name, "partition") from paused)
    select exists (select from paused);
$$;
-- +goose StatementEnd

-- resume says whether it was paused.
-- +goose StatementBegin
create or replace function firstseen.resume(
    p_inbox text, p_kind text, p_name text, p_partition int, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with resumed as (
        delete from pauses
        where inbox = p_inbox and kind = p_kind and name = p_name and "partition" = p_partition
        returning kind, name, "partition"),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'resume', p_why, p_inbox, pause_subject(kind, name, "partition") from resumed)
    select exists (select from resumed);
$$;
-- +goose StatementEnd

-- Until roles.sql is run again nobody but the owner may call these: functions are everybody's by default.
revoke execute on function firstseen.pause, firstseen.resume from public;

-- claim_lanes takes due lanes for a worker, whose transaction then locks them, but none that an operator has paused.
-- Until it does, or if it dies, p_lease keeps others away. claims counts how often a lane was taken since it last got
-- anywhere: a message that kills the process shows by it.
-- +goose StatementBegin
create or replace function firstseen.claim_lanes(p_inbox text, p_handler text, p_limit int, p_lease_ms bigint)
returns table (scope_id int, tenant text, lane uuid, claims int, claim int)
language sql
set search_path = firstseen, pg_temp
as $$
    with paused as materialized (
        select coalesce(array_agg(p.name) filter (where p.kind = 'topic'), '{}') as topics,
               coalesce(array_agg(p.name || '/' || p."partition") filter (where p.kind = 'partition'), '{}') as partitions,
               coalesce(bool_or(p.kind = 'handler' and p.name = p_handler), false) as handler
        from pauses p
        where p.inbox = p_inbox),
    due as (
        select s.scope_id, s.tenant, l.lane
        from scopes s
        cross join lateral (
            select l.lane
            from lanes l
            where l.scope_id = s.scope_id and l.due_at <= clock_timestamp()
              and l.topic <> all ((select p.topics from paused p)::text[])
              and concat(l.topic, '/', l."partition") <> all ((select p.partitions from paused p)::text[])
            order by l.due_at
            limit p_limit
            for no key update skip locked) l
        where s.inbox = p_inbox and s.handler = p_handler and not (select p.handler from paused p)
        limit p_limit)
    update lanes l
    set claims = l.claims + 1, claim = l.claim + 1, due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
    from due d
    where l.scope_id = d.scope_id and l.lane = d.lane
    returning l.scope_id, d.tenant, l.lane, l.claims, l.claim;
$$;
-- +goose StatementEnd

-- +goose Down
-- claim_lanes takes due lanes for a worker, whose transaction then locks them. Until it does, or if it dies, p_lease
-- keeps others away. claims counts how often a lane was taken since it last got anywhere: a message that kills the
-- process shows by it.
-- +goose StatementBegin
create or replace function firstseen.claim_lanes(p_inbox text, p_handler text, p_limit int, p_lease_ms bigint)
returns table (scope_id int, tenant text, lane uuid, claims int, claim int)
language sql
set search_path = firstseen, pg_temp
as $$
    with due as (
        select s.scope_id, s.tenant, l.lane
        from scopes s
        cross join lateral (
            select l.lane
            from lanes l
            where l.scope_id = s.scope_id and l.due_at <= clock_timestamp()
            order by l.due_at
            limit p_limit
            for no key update skip locked) l
        where s.inbox = p_inbox and s.handler = p_handler
        limit p_limit)
    update lanes l
    set claims = l.claims + 1, claim = l.claim + 1, due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
    from due d
    where l.scope_id = d.scope_id and l.lane = d.lane
    returning l.scope_id, d.tenant, l.lane, l.claims, l.claim;
$$;
-- +goose StatementEnd
drop function firstseen.pause, firstseen.resume, firstseen.pause_subject;
delete from firstseen.audit where message_id is null;
alter table firstseen.audit
    drop constraint actor_and_why_are_said,
    drop column login,
    drop column subject,
    drop column inbox,
    alter column message_id set not null,
    alter column scope_id set not null;
drop table firstseen.pauses;
