-- +goose Up

-- The table is locked for as long as its indexes take to build, and its lock is asked for half a second at a time, so that
-- batches wait behind this for no longer.
-- +goose StatementBegin
do $$
begin
    perform set_config('lock_timeout', '500ms', true);
    for attempt in 1 .. 1000 loop
        begin
            lock table firstseen.dead_letters in access exclusive mode;
            exit;
        exception when lock_not_available then
            if attempt = 1000 then
                raise;
            end if;
        end;
        perform pg_sleep(0.5);
    end loop;
    perform set_config('lock_timeout', '0', true);
end
$$;
-- +goose StatementEnd

-- Which transaction gave a letter up, so that a job can be of the letters that were there at a moment; null: one before
-- this column was there. Letters that a restore has brought may have the numbers of another server.
alter table firstseen.dead_letters add column buried_by xid8;
alter table firstseen.dead_letters alter column buried_by set default pg_current_xact_id();

-- Lead through dead letters in the order in which they are given back, and from an ID to its letters.
create index dead_letters_place on firstseen.dead_letters
    (topic collate "C", (coalesce("partition", -1)), (coalesce("offset", seq)), scope_id, message_id);
create index dead_letters_message on firstseen.dead_letters (message_id);

-- What is to be done to dead letters, and how far it has got: redrive or discard those that lay there at a moment and that a
-- filter picks. Whoever made it chose the number, so that who asks twice has asked once. Any process works on it, for one
-- transaction at a time in which it has the row locked: what it has changed, what it has counted and where it has got to
-- are one commit. Its place goes through the index dead_letters_place.
create table firstseen.jobs (
    job_id        uuid primary key,
    inbox         text collate "C" not null,
    kind          text not null check (kind in ('redrive', 'discard')),
    topic         text collate "C",     -- the filter's; null: any
    handler       text collate "C",
    tenant        text collate "C",
    reason        text,
    key           bytea,
    died_from     timestamptz,
    died_to       timestamptz,
    message_ids   uuid[],
    moment        pg_snapshot not null, -- what was committed by then lay there
    fixed_at      timestamptz not null, -- the same as a time
    expected      int not null,         -- letters, as counted when it was made
    expected_more boolean not null,     -- and there were more
    actor         text not null,
    why           text not null,
    login         text not null default session_user,
    created_at    timestamptz not null default now(),
    state         text not null default 'queued' check (state in ('queued', 'running', 'done', 'cancelled')),
    done          bigint not null default 0, -- letters that were redriven or discarded
    skipped       bigint not null default 0, -- that were gone meanwhile, or can't be redriven for want of a message ID
    failed        bigint not null default 0,
    error         text,                      -- of the last one that failed
    worked_at     timestamptz,               -- the last transaction's end
    worker        text,                      -- and whose that was
    finished_at   timestamptz,
    at_topic      text collate "C" not null default '', -- what lies up to here is done
    at_partition  int not null default -2,
    at_offset     bigint not null default 0,
    at_scope      int not null default 0,
    at_message    uuid not null default '00000000-0000-0000-0000-000000000000'
) with (fillfactor = 50);
create index jobs_by_time on firstseen.jobs (inbox, created_at, job_id);
create index jobs_unfinished on firstseen.jobs (worked_at) where finished_at is null;

-- create_job makes a job, and says whether it did: where there is one of that number, that one stands. It runs as the
-- schema's owner, like redrive.
-- +goose StatementBegin
create function firstseen.create_job(
    p_job uuid, p_inbox text, p_kind text, p_topic text, p_handler text, p_tenant text, p_reason text, p_key bytea,
    p_from timestamptz, p_to timestamptz, p_ids uuid[], p_moment text, p_fixed_at timestamptz, p_expected int,
    p_expected_more boolean, p_actor text, p_why text)
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    if pg_snapshot_xmax(p_moment::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) then
        raise exception 'the moment % has not come yet: it is another server''s', p_moment
            using errcode = 'invalid_parameter_value';
    end if;
    insert into jobs (job_id, inbox, kind, topic, handler, tenant, reason, key, died_from, died_to, message_ids, moment,
                      fixed_at, expected, expected_more, actor, why)
    values (p_job, p_inbox, p_kind, p_topic, p_handler, p_tenant, p_reason, p_key, p_from, p_to, p_ids,
            p_moment::pg_snapshot, p_fixed_at, p_expected, p_expected_more, p_actor, p_why)
    on conflict do nothing;
    if found then
        insert into audit (actor, action, why, inbox, subject) values (p_actor, p_kind, p_why, p_inbox, 'job ' || p_job);
    end if;
    return found;
end
$$;
-- +goose StatementEnd

-- cancel_job ends a job that has not ended, and says whether it did. It waits for the transaction of whoever works on it.
-- +goose StatementBegin
create function firstseen.cancel_job(p_job uuid, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with cancelled as (
        update jobs
        set state = 'cancelled', finished_at = clock_timestamp()
        where job_id = p_job and finished_at is null
        returning inbox, job_id, done),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'cancel', p_why, inbox, format('job %s, with %s done', job_id, done) from cancelled)
    select exists (select from cancelled);
$$;
-- +goose StatementEnd

-- job_page looks at the next p_looks dead letters of a job, or the next of its IDs, and gives the first p_rows that it
-- is of, but of one partition only; and where to go on from. By the numbers of transactions alone a job that a restore has
-- brought would be of what dies on the new server; by times, up to clocks that differ, it is not.
-- +goose StatementBegin
create function firstseen.job_page(
    p_job firstseen.jobs, p_looks int, p_rows int, out scopes int[], out ids uuid[], out is_last boolean, out at_topic text,
    out at_partition int, out at_offset bigint, out at_scope int, out at_message uuid)
language sql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    with looked as materialized (
        select row_number() over (order by d.topic, d."partition", d."offset", d.scope_id, d.message_id) as n, d.*,
               (s.inbox = p_job.inbox
                and (p_job.topic is null or d.topic = p_job.topic)
                and (p_job.handler is null or s.handler = p_job.handler)
                and (p_job.tenant is null or s.tenant = p_job.tenant)
                and (p_job.reason is null or d.reason = p_job.reason)
                and (p_job.key is null or d.key = p_job.key)
                and (p_job.died_from is null or d.died_at >= p_job.died_from)
                and (p_job.died_to is null or d.died_at < p_job.died_to)
                and d.died_at < p_job.fixed_at + interval '1 minute'
                and (d.buried_by is null or pg_visible_in_snapshot(d.buried_by, p_job.moment)
                     or d.buried_by >= pg_snapshot_xmax(pg_current_snapshot()))) is true as is_its
        from (
            (select d.topic collate "C" as topic, coalesce(d."partition", -1) as "partition", coalesce(d."offset", d.seq) as "offset",
                    d.scope_id, d.message_id, d.reason, d.key, d.died_at, d.buried_by
             from dead_letters d
             where p_job.message_ids is null
               and (d.topic collate "C", coalesce(d."partition", -1), coalesce(d."offset", d.seq), d.scope_id, d.message_id)
                   > (p_job.at_topic, p_job.at_partition, p_job.at_offset, p_job.at_scope, p_job.at_message)
             order by 1, 2, 3, 4, 5
             limit p_looks)
            union all
            (select d.topic collate "C", coalesce(d."partition", -1), coalesce(d."offset", d.seq), d.scope_id, d.message_id, d.reason,
                    d.key, d.died_at, d.buried_by
             from unnest(p_job.message_ids) w (message_id)
             join dead_letters d using (message_id)
             where (d.topic collate "C", coalesce(d."partition", -1), coalesce(d."offset", d.seq), d.scope_id, d.message_id)
                   > (p_job.at_topic, p_job.at_partition, p_job.at_offset, p_job.at_scope, p_job.at_message)
             order by 1, 2, 3, 4, 5
             limit p_looks)) d
        left join scopes s using (scope_id)),
    taken as (
        select l.n, l.scope_id, l.message_id
        from looked l
        where l.is_its
          and (l.topic, l."partition") = (select f.topic, f."partition" from looked f where f.is_its order by f.n limit 1)
        order by l.n
        limit p_rows),
    seen as (
        select coalesce((select min(l.n) - 1 from looked l where l.is_its and l.n > coalesce((select max(n) from taken), 0)),
                        (select count(*) from looked)) as n)
    select (select array_agg(t.scope_id order by t.n) from taken t), (select array_agg(t.message_id order by t.n) from taken t),
           (select count(*) from looked) < p_looks and s.n = (select count(*) from looked),
           l.topic, l."partition", l."offset", l.scope_id, l.message_id
    from seen s
    left join looked l on l.n = s.n;
$$;
-- +goose StatementEnd

-- work_job does a part of a job: up to p_rows of its letters, of one partition. How many it changed is null where there is no such
-- job to do, or another transaction is at it. The lanes are those that wake_lanes has to be called for after the commit. With
-- p_failed the letters stay as they are and are counted as failed, by that error. A batch that is open on the partition is waited for, but
-- not for long: whoever cancels the job waits too.
-- It runs as the schema's owner: a consumer, who may neither redrive nor discard, does by it what an operator has asked for,
-- and nothing else.
-- +goose StatementBegin
create function firstseen.work_job(
    p_job uuid, p_worker text, p_looks int, p_rows int, p_failed text,
    out changed int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_job   jobs;
    v_page  record;
    v_taken int;
begin
    select * into v_job from jobs j where j.job_id = p_job and j.finished_at is null for no key update skip locked;
    if not found then
        return;
    end if;
    select * into v_page from job_page(v_job, p_rows + 100, p_rows);
    if v_page.ids is null and not v_page.is_last then -- they lie far apart
        select * into v_page from job_page(v_job, p_looks, p_rows);
    end if;
    v_taken := coalesce(cardinality(v_page.ids), 0);
    changed := 0;
    if v_taken = 0 or p_failed is not null then
        null;
    elsif v_job.kind = 'redrive' then
        select r.redriven, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from redrive(v_page.scopes, v_page.ids, v_job.actor, format('%s (job %s)', v_job.why, p_job)) r;
    else
        changed := discard(v_page.scopes, v_page.ids, v_job.actor, format('%s (job %s)', v_job.why, p_job));
    end if;
    update jobs
    set state = case when v_page.is_last then 'done' else 'running' end,
        done = done + changed,
        skipped = skipped + case when p_failed is null then v_taken - changed else 0 end,
        failed = failed + case when p_failed is null then 0 else v_taken end,
        error = case when v_taken > 0 then coalesce(p_failed, error) else error end,
        at_topic = coalesce(v_page.at_topic, at_topic), at_partition = coalesce(v_page.at_partition, at_partition),
        at_offset = coalesce(v_page.at_offset, at_offset), at_scope = coalesce(v_page.at_scope, at_scope),
        at_message = coalesce(v_page.at_message, at_message),
        worked_at = clock_timestamp(), worker = p_worker,
        finished_at = case when v_page.is_last then clock_timestamp() end
    where job_id = p_job
    returning * into v_job;
    if v_page.is_last then
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.actor, v_job.kind, v_job.why, v_job.inbox,
                format('job %s is done: %s changed, %s skipped, %s failed', p_job, v_job.done, v_job.skipped, v_job.failed));
    end if;
end
$$;
-- +goose StatementEnd

-- sweep_jobs forgets jobs that ended more than 30 days ago, and says how many. What they did stays in the audit.
-- +goose StatementBegin
create function firstseen.sweep_jobs()
returns int
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with gone as (delete from jobs where finished_at < now() - interval '30 days' returning 1)
    select count(*)::int from gone;
$$;
-- +goose StatementEnd

revoke execute on function firstseen.create_job, firstseen.cancel_job, firstseen.work_job, firstseen.sweep_jobs from public;

-- +goose Down
drop function firstseen.sweep_jobs, firstseen.work_job, firstseen.job_page, firstseen.cancel_job, firstseen.create_job;
drop table firstseen.jobs;
drop index firstseen.dead_letters_message, firstseen.dead_letters_place;
alter table firstseen.dead_letters drop column buried_by;
