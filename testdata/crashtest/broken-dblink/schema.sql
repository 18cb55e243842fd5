-- The journal is written in a second session, which commits by itself: what the handler's own transaction loses is written
-- again at the next try.
create extension dblink;
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create table shop.journal (payment text not null, cents bigint not null);
create role journalist login password 'journalist';
grant usage on schema shop to journalist;
grant insert on shop.journal to journalist;
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
	perform public.dblink_exec(
		format('host=127.0.0.1 port=%s dbname=%I user=journalist password=journalist', inet_server_port(), current_database()),
		format('insert into shop.journal values (%L, %s)', m.raw_id, p->>'cents'));
end $$;
