-- +goose Up

-- A rerun is a job too: its messages are set down when it is made, in the order in which they go, so that it is of those that
-- were counted. A job can be paused: nobody works on it until it is resumed.
alter table firstseen.jobs
    drop constraint jobs_kind_check,
    drop constraint jobs_state_check,
    add constraint jobs_kind_check check (kind in ('redrive', 'discard', 'rerun')),
    add constraint jobs_state_check check (state in ('queued', 'running', 'paused', 'done', 'cancelled')),
    add column "partition" int, -- a rerun's range of offsets; null: none
    add column from_offset bigint,
    add column to_offset   bigint,
    add column ordering    text; -- of a rerun's handler

-- The messages of reruns that have not ended. The job's at_offset is the number of the last one that is done.
create table firstseen.job_messages (
    job_id      uuid not null,
    n           int not null,
    part        int not null, -- those of one partition have one number
    received_at timestamptz not null,
    seq         bigint not null,
    lane        uuid not null,
    primary key (job_id, n)
);

-- create_rerun makes a rerun of messages, in the order in which they are given, and says whether it did: where there is a
-- job of that number, that one stands. It runs as the schema's owner, like rerun.
-- +goose StatementBegin
create function firstseen.create_rerun(
    p_job uuid, p_inbox text, p_topic text, p_handler text, p_tenant text, p_key bytea, p_from timestamptz, p_to timestamptz,
    p_ids uuid[], p_partition int, p_from_offset bigint, p_to_offset bigint, p_ordering text, p_parts int[],
    p_received timestamptz[], p_seqs bigint[], p_lanes uuid[], p_actor text, p_why text)
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    insert into jobs (job_id, inbox, kind, topic, handler, tenant, key, died_from, died_to, message_ids, "partition", from_offset,
                      to_offset, ordering, moment, fixed_at, expected, expected_more, actor, why)
    values (p_job, p_inbox, 'rerun', p_topic, p_handler, p_tenant, p_key, p_from, p_to, p_ids, p_partition, p_from_offset,
            p_to_offset, p_ordering, pg_current_snapshot(), now(), cardinality(p_seqs), false, p_actor, p_why)
    on conflict do nothing;
    if not found then
        return false;
    end if;
    insert into job_messages (job_id, n, part, received_at, seq, lane)
    select p_job, m.n, m.part, m.received_at, m.seq, m.lane
    from unnest(p_parts, p_received, p_seqs, p_lanes) with ordinality m (part, received_at, seq, lane, n);
    insert into audit (actor, action, why, inbox, subject) values (p_actor, 'rerun', p_why, p_inbox, 'job ' || p_job);
    return true;
end
$$;
-- +goose StatementEnd

-- pause_job has a job rest, or go on, and says whether that changed anything. It waits for the transaction of whoever works
-- on it.
-- +goose StatementBegin
create function firstseen.pause_job(p_job uuid, p_pause boolean, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with changed as (
        update jobs
        set state = case when p_pause then 'paused' when worked_at is null then 'queued' else 'running' end
        where job_id = p_job and finished_at is null and (state = 'paused') <> p_pause
        returning inbox, job_id, done),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, case when p_pause then 'pause' else 'resume' end, p_why, inbox, format('job %s, with %s done', job_id, done)
        from changed)
    select exists (select from changed);
$$;
-- +goose StatementEnd

-- cancel_job ends a job: see migration 18.
-- +goose StatementBegin
create or replace function firstseen.cancel_job(p_job uuid, p_actor text, p_why text)
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
    forgotten as (
        delete from job_messages m using cancelled c where m.job_id = c.job_id),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'cancel', p_why, inbox, format('job %s, with %s done', job_id, done) from cancelled)
    select exists (select from cancelled);
$$;
-- +goose StatementEnd

-- rerun_page gives the next p_rows messages of a rerun, of one partition only.
-- +goose StatementBegin
create function firstseen.rerun_page(
    p_job firstseen.jobs, p_rows int, out received timestamptz[], out seqs bigint[], out lanes uuid[], out is_last boolean,
    out at_offset bigint)
language sql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
    with looked as materialized (
        select m.* from job_messages m where m.job_id = p_job.job_id and m.n > p_job.at_offset order by m.n limit p_rows + 1),
    taken as (
        select l.* from looked l where l.part = (select f.part from looked f order by f.n limit 1) order by l.n limit p_rows)
    select array_agg(t.received_at order by t.n), array_agg(t.seq order by t.n), array_agg(t.lane order by t.n),
           count(*) = (select count(*) from looked), max(t.n)
    from taken t;
$$;
-- +goose StatementEnd

-- work_job does a part of a job: see migration 18.
-- +goose StatementBegin
create or replace function firstseen.work_job(
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
    v_rerun record;
    v_taken int;
    v_why   text;
begin
    select * into v_job from jobs j
    where j.job_id = p_job and j.finished_at is null and j.state <> 'paused'
    for no key update skip locked;
    if not found then
        return;
    end if;
    v_why := format('%s (job %s)', v_job.why, p_job);
    if v_job.kind = 'rerun' then
        select * into v_rerun from rerun_page(v_job, p_rows);
        select v_rerun.is_last, null::text as at_topic, null::int as at_partition, v_rerun.at_offset, null::int as at_scope,
               null::uuid as at_message into v_page;
        v_taken := coalesce(cardinality(v_rerun.seqs), 0);
    else
        select * into v_page from job_page(v_job, p_rows + 100, p_rows);
        if v_page.ids is null and not v_page.is_last then -- they lie far apart
            select * into v_page from job_page(v_job, p_looks, p_rows);
        end if;
        v_taken := coalesce(cardinality(v_page.ids), 0);
    end if;
    changed := 0;
    if v_taken = 0 or p_failed is not null then
        null;
    elsif v_job.kind = 'rerun' then
        select r.moved, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from rerun(v_rerun.received, v_rerun.seqs, v_rerun.lanes, v_job.actor, v_why) r;
    elsif v_job.kind = 'redrive' then
        select r.redriven, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from redrive(v_page.scopes, v_page.ids, v_job.actor, v_why) r;
    else
        changed := discard(v_page.scopes, v_page.ids, v_job.actor, v_why);
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
        delete from job_messages m where m.job_id = p_job;
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.actor, v_job.kind, v_job.why, v_job.inbox,
                format('job %s is done: %s changed, %s skipped, %s failed', p_job, v_job.done, v_job.skipped, v_job.failed));
    end if;
end
$$;
-- +goose StatementEnd

revoke execute on function firstseen.create_rerun, firstseen.pause_job from public;

-- +goose Down
-- Reruns that have not ended are forgotten: what they have given back to handlers stays there.
delete from firstseen.jobs where kind = 'rerun';
update firstseen.jobs set state = case when worked_at is null then 'queued' else 'running' end where state = 'paused';

-- +goose StatementBegin
create or replace function firstseen.work_job(
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

-- +goose StatementBegin
create or replace function firstseen.cancel_job(p_job uuid, p_actor text, p_why text)
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

drop function firstseen.rerun_page, firstseen.pause_job, firstseen.create_rerun;
drop table firstseen.job_messages;
alter table firstseen.jobs
    drop constraint jobs_kind_check,
    drop constraint jobs_state_check,
    add constraint jobs_kind_check check (kind in ('redrive', 'discard')),
    add constraint jobs_state_check check (state in ('queued', 'running', 'done', 'cancelled')),
    drop column "partition", drop column from_offset, drop column to_offset, drop column ordering;
