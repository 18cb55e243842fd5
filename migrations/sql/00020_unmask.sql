-- +goose Up

-- unmask notes in the audit that somebody is shown what the config hides of a message. It runs as the schema's owner, like
-- redrive; what is shown is read by whoever asks.
-- +goose StatementBegin
create function firstseen.unmask(p_inbox text, p_subject text, p_message uuid, p_actor text, p_why text)
returns void
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    insert into audit (actor, action, why, inbox, subject, message_id)
    values (p_actor, 'unmask', p_why, p_inbox, p_subject, p_message);
$$;
-- +goose StatementEnd
revoke execute on function firstseen.unmask from public;

-- +goose Down
drop function firstseen.unmask;
