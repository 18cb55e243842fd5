-- The five roles of firstseen. Roles are of the whole cluster, not of one database: two databases that both run this
-- share them, and a login that is granted one has its rights in both. Where that must not be, keep logins out of the
-- other database:
--     revoke connect on database shop from public; grant connect on database shop to payments;
-- Run this after `migrate up`, and again after every later migration: `migrate roles` does. The first time, and when
-- a version brings a role that is not there yet, as a superuser, or as a role that may create roles and owns the schema;
-- else as a member of firstseen_owner.
--
--   firstseen_owner     owns the schema and all that is in it. A login that migrates is granted this role, and
--                       takes it on for what it makes:
--                           create role deploy login in role firstseen_owner;
--                           alter role deploy set role firstseen_owner;
--   firstseen_consumer  adds message IDs and inbox rows, parks messages and moves positions. It can't change the schema,
--                       and can't forget or alter an ID. It works on the jobs that operators have made. It notes messages that
--                       come by HTTP, each with an event in the audit. It keeps the answers to HTTP requests, and forgets them when their time is over. A login
--                       that consumes is granted this role:
--                           create role payments login in role firstseen_consumer;
--   firstseen_operator  reads everything, payloads included, redrives and discards dead letters, also by jobs, pauses and resumes, reruns
--                       messages and resets offsets, which leaves a note of who and why in the table audit. It can do
--                       nothing else. A person's login is granted this role:
--                           create role night_shift login in role firstseen_operator;
--   firstseen_retention deletes what is older than retention says, through functions that keep the rest: IDs of unfinished
--                       and dead messages, and all that is younger than the table upkeep_limits allows, which only the
--                       schema's owner may change. Without it nobody but the owner can forget an ID. Where a consumer's
--                       config switches retention on, or a person runs `firstseen retention run`, its login is granted
--                       this role beside its own:
--                           grant firstseen_retention to payments;
--   firstseen_sender    adds messages to the outbox, in its own transactions, and can neither read nor change what is there. A
--                       login that adds is granted this role, unless it is a consumer's already:
--                           grant firstseen_sender to shop;
--                       A relay, which sends them, is a consumer.
--
-- Beside these a consumer needs whatever its handlers touch; grant that to its login.
--
-- Where two instances of one consumer log in as different roles, the new owner of a partition can end an old owner's
-- hung transaction only with:
--     grant pg_signal_backend to firstseen_consumer;
-- A handler in SQL that is `security definer` reads messages as its own owner, who then needs:
--     grant usage on schema firstseen to app_owner;
--     grant execute on function firstseen.header, firstseen.body, firstseen.decode_headers to app_owner;

do $$
declare
    v_role text;
begin
    foreach v_role in array array['firstseen_owner', 'firstseen_consumer', 'firstseen_operator', 'firstseen_retention',
                                'firstseen_sender'] loop
        if not exists (select from pg_roles where rolname = v_role) then
            begin
                execute format('create role %I nologin', v_role);
            exception when duplicate_object or unique_violation then
                null; -- made by whoever runs this for another database just now
            end;
        end if;
    end loop;
    -- Only a superuser gives things away to a role that it is no member of.
    if not (select rolsuper from pg_roles where rolname = current_user) then
        if not pg_has_role('firstseen_owner', 'usage') then
            execute format('grant firstseen_owner to %I', current_user);
        end if;
        if not exists (select from pg_namespace where nspname = 'firstseen' and nspowner = 'firstseen_owner'::regrole) then
            execute format('grant create on database %I to firstseen_owner', current_database());
        end if;
    end if;
end
$$;

-- Ownership: the schema, and whatever in it is somebody else's yet.
alter schema firstseen owner to firstseen_owner;
do $$
declare
    v_owner  oid := (select oid from pg_roles where rolname = 'firstseen_owner');
    v_schema oid := (select oid from pg_namespace where nspname = 'firstseen');
    v_alter  text;
begin
    for v_alter in
        select format('alter table %s owner to firstseen_owner', c.oid::regclass)
        from pg_class c
        where c.relnamespace = v_schema and c.relowner <> v_owner
          and (c.relkind in ('r', 'p')
               or c.relkind = 'S' and not exists ( -- a column's own goes with its table
                   select from pg_depend d
                   where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')))
        union all
        select format('alter type %s owner to firstseen_owner', t.oid::regtype)
        from pg_type t
        left join pg_class c on c.oid = t.typrelid
        where t.typnamespace = v_schema and t.typowner <> v_owner
          and (t.typtype = 'e' or t.typtype = 'c' and c.relkind = 'c')
        union all
        select format('alter function %s owner to firstseen_owner', p.oid::regprocedure)
        from pg_proc p
        where p.pronamespace = v_schema and p.proowner <> v_owner
    loop
        execute v_alter;
    end loop;
end
$$;

-- Rights, from none: a right that an earlier version gave and this one doesn't is gone.
revoke all on schema firstseen from public, firstseen_consumer, firstseen_operator, firstseen_retention,
    firstseen_sender;
revoke all on all tables in schema firstseen from public, firstseen_consumer, firstseen_operator, firstseen_retention,
    firstseen_sender;
revoke all on all sequences in schema firstseen from public, firstseen_consumer, firstseen_operator, firstseen_retention,
    firstseen_sender;
revoke all on all functions in schema firstseen from public, firstseen_consumer, firstseen_operator, firstseen_retention,
    firstseen_sender;

grant usage on schema firstseen to firstseen_consumer, firstseen_operator, firstseen_retention, firstseen_sender;
grant select on all tables in schema firstseen to firstseen_consumer, firstseen_operator;

grant insert on firstseen.scopes, firstseen.message_dedup, firstseen.inbox, firstseen.parked, firstseen.lanes,
    firstseen.dead_letters, firstseen.conflicts, firstseen.positions, firstseen.unsealed to firstseen_consumer;
grant update on firstseen.parked, firstseen.lanes, firstseen.positions to firstseen_consumer;
grant update (published_at) on firstseen.dead_letters to firstseen_consumer;
grant delete on firstseen.parked, firstseen.lanes, firstseen.unsealed to firstseen_consumer;
grant insert, delete on firstseen.replays, firstseen.turns to firstseen_consumer;
grant insert, update, delete on firstseen.holds, firstseen.idempotency to firstseen_consumer;
grant insert, delete on firstseen.outbox to firstseen_consumer;
grant update, delete on firstseen.outbox_delayed to firstseen_consumer;
grant insert, update on firstseen.outbox_shards to firstseen_consumer;
grant usage on sequence firstseen.message_seq to firstseen_consumer;
grant execute on all functions in schema firstseen to firstseen_consumer;
revoke execute on function firstseen.redrive, firstseen.discard, firstseen.create_job, firstseen.cancel_job from firstseen_consumer;
revoke execute on function firstseen.create_rerun, firstseen.create_replay, firstseen.pause_job, firstseen.unmask from firstseen_consumer;
revoke execute on function firstseen.reset_position from firstseen_consumer;
revoke execute on function firstseen.pause, firstseen.resume from firstseen_consumer;
revoke execute on function firstseen.rerun, firstseen.forget_ids, firstseen.drop_inbox_day, firstseen.trim_inbox from firstseen_consumer;
revoke execute on function firstseen.claim_upkeep from firstseen_consumer;

-- These run as their owner: that is all an operator can change.
grant execute on function firstseen.redrive, firstseen.discard, firstseen.wake_lanes to firstseen_operator;
grant execute on function firstseen.create_job, firstseen.create_rerun, firstseen.create_replay, firstseen.cancel_job, firstseen.pause_job, firstseen.unmask to firstseen_operator;
grant execute on function firstseen.reset_position, firstseen.look to firstseen_operator;
grant execute on function firstseen.pause, firstseen.resume to firstseen_operator;
grant execute on function firstseen.decode_headers, firstseen.header, firstseen.body to firstseen_operator;
grant execute on function firstseen.rerun to firstseen_operator;
grant execute on function firstseen.forget_ids, firstseen.drop_inbox_day, firstseen.trim_inbox, firstseen.claim_upkeep to firstseen_retention;
grant select on firstseen.scopes, firstseen.positions, firstseen.replays, firstseen.upkeep, firstseen.upkeep_limits, firstseen.schema_version,
    firstseen.outbox_shards to firstseen_retention;

-- These run as their owner too.
grant execute on function firstseen.send(text, bytea, text, text, text, jsonb, timestamptz),
    firstseen.send(text, jsonb, text, text, text, jsonb, timestamptz), firstseen.send(text, text, text, text, text, jsonb, timestamptz),
    firstseen.add_outbox, firstseen.add_outbox_message, firstseen.outbox_message_id to firstseen_sender;
